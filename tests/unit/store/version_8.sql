CREATE TABLE attempts (
	run_id VARCHAR NOT NULL,
	submodel VARCHAR NOT NULL,
	attempt INTEGER NOT NULL,
	from_step INTEGER NOT NULL,
	at_s DOUBLE NOT NULL,
	PRIMARY KEY (run_id, submodel, attempt)
);
CREATE TABLE commands (
	id INTEGER NOT NULL,
	run_id VARCHAR NOT NULL,
	submodel VARCHAR,
	verb VARCHAR NOT NULL,
	arguments JSON NOT NULL,
	issued_at_s DOUBLE NOT NULL,
	applied_at_s DOUBLE,
	outcome VARCHAR,
	PRIMARY KEY (id)
);
CREATE TABLE drafts (
	id VARCHAR NOT NULL,
	owner VARCHAR NOT NULL,
	document JSON NOT NULL,
	changed_at_s DOUBLE NOT NULL,
	PRIMARY KEY (id)
);
CREATE TABLE epoch_metrics (
	run_id VARCHAR NOT NULL,
	submodel VARCHAR NOT NULL,
	attempt INTEGER NOT NULL,
	epoch INTEGER NOT NULL,
	step INTEGER NOT NULL,
	learning_rate DOUBLE,
	train_loss DOUBLE,
	train_accuracy DOUBLE,
	test_loss DOUBLE,
	test_accuracy DOUBLE,
	PRIMARY KEY (run_id, submodel, attempt, epoch)
);
CREATE TABLE events (
	id INTEGER NOT NULL,
	run_id VARCHAR NOT NULL,
	submodel VARCHAR,
	at_s DOUBLE NOT NULL,
	kind VARCHAR NOT NULL,
	code VARCHAR NOT NULL,
	state VARCHAR,
	fields JSON NOT NULL,
	PRIMARY KEY (id)
);
CREATE TABLE file_owners (
	sha256 VARCHAR NOT NULL,
	owner VARCHAR NOT NULL,
	filename VARCHAR NOT NULL,
	created_at_s DOUBLE NOT NULL,
	PRIMARY KEY (sha256, owner)
);
CREATE TABLE files (
	sha256 VARCHAR NOT NULL,
	kind VARCHAR NOT NULL,
	filename VARCHAR NOT NULL,
	format VARCHAR NOT NULL,
	size_bytes BIGINT NOT NULL,
	created_at_s DOUBLE NOT NULL,
	facts JSON NOT NULL,
	PRIMARY KEY (sha256)
);
CREATE TABLE ledger (
	id INTEGER NOT NULL,
	at_s DOUBLE NOT NULL,
	person VARCHAR NOT NULL,
	role VARCHAR NOT NULL,
	action VARCHAR NOT NULL,
	subject VARCHAR NOT NULL,
	outcome VARCHAR NOT NULL,
	PRIMARY KEY (id)
);
CREATE TABLE measured_memory (
	"key" VARCHAR NOT NULL,
	size_bytes BIGINT NOT NULL,
	source VARCHAR NOT NULL,
	times INTEGER NOT NULL,
	at_s DOUBLE NOT NULL,
	PRIMARY KEY ("key")
);
CREATE TABLE memory_samples (
	id INTEGER NOT NULL,
	run_id VARCHAR NOT NULL,
	at_s DOUBLE NOT NULL,
	source VARCHAR NOT NULL,
	size_bytes BIGINT NOT NULL,
	PRIMARY KEY (id)
);
CREATE TABLE memory_strata (
	id INTEGER NOT NULL,
	run_id VARCHAR NOT NULL,
	at_s DOUBLE NOT NULL,
	source VARCHAR NOT NULL,
	total_bytes BIGINT NOT NULL,
	strata JSON NOT NULL,
	PRIMARY KEY (id)
);
CREATE TABLE people (
	id VARCHAR NOT NULL,
	role VARCHAR NOT NULL,
	team VARCHAR,
	tickets INTEGER,
	changed_at_s DOUBLE NOT NULL,
	changed_by VARCHAR NOT NULL,
	PRIMARY KEY (id)
);
CREATE TABLE runs (
	id VARCHAR NOT NULL,
	name VARCHAR NOT NULL,
	submitter VARCHAR NOT NULL,
	state VARCHAR NOT NULL,
	device VARCHAR NOT NULL,
	mode VARCHAR NOT NULL,
	fingerprint VARCHAR NOT NULL,
	spec JSON NOT NULL,
	attempt INTEGER NOT NULL,
	died_at VARCHAR,
	recoveries INTEGER NOT NULL,
	deaths_there INTEGER NOT NULL,
	deaths INTEGER NOT NULL,
	resume_at_s DOUBLE,
	threads INTEGER,
	cause VARCHAR,
	remedy VARCHAR,
	created_at_s DOUBLE NOT NULL,
	launched_at_s DOUBLE,
	started_at_s DOUBLE,
	ended_at_s DOUBLE,
	cpu_s DOUBLE,
	gpu_s DOUBLE,
	energy_j DOUBLE,
	waits_for VARCHAR,
	prediction JSON NOT NULL,
	memory_notes JSON NOT NULL,
	now_reason VARCHAR,
	memory_source VARCHAR,
	peak_memory_bytes BIGINT,
	environment JSON NOT NULL,
	graph VARCHAR NOT NULL,
	worker_pid INTEGER,
	worker_started_at_s DOUBLE,
	worker_boot_id VARCHAR,
	heartbeat_at_s DOUBLE,
	claimer JSON,
	PRIMARY KEY (id)
);
CREATE TABLE schema_version (
	version INTEGER NOT NULL,
	PRIMARY KEY (version)
);
CREATE TABLE settings (
	name VARCHAR NOT NULL,
	value VARCHAR NOT NULL,
	changed_at_s DOUBLE NOT NULL,
	changed_by VARCHAR NOT NULL,
	PRIMARY KEY (name)
);
CREATE TABLE slices (
	id INTEGER NOT NULL,
	run_id VARCHAR NOT NULL,
	submodel VARCHAR NOT NULL,
	attempt INTEGER NOT NULL,
	start_s DOUBLE NOT NULL,
	end_s DOUBLE NOT NULL,
	steps INTEGER NOT NULL,
	from_step INTEGER NOT NULL,
	reason VARCHAR NOT NULL,
	lane INTEGER NOT NULL,
	PRIMARY KEY (id)
);
CREATE TABLE step_metrics (
	run_id VARCHAR NOT NULL,
	submodel VARCHAR NOT NULL,
	attempt INTEGER NOT NULL,
	step INTEGER NOT NULL,
	steps INTEGER NOT NULL,
	epoch DOUBLE NOT NULL,
	loss DOUBLE,
	accuracy DOUBLE,
	PRIMARY KEY (run_id, submodel, attempt, step)
);
CREATE TABLE submodels (
	run_id VARCHAR NOT NULL,
	name VARCHAR NOT NULL,
	owner VARCHAR NOT NULL,
	lenders JSON NOT NULL,
	arrival INTEGER NOT NULL,
	number INTEGER NOT NULL,
	state VARCHAR NOT NULL,
	priority INTEGER NOT NULL,
	deadline_s DOUBLE,
	attempt INTEGER NOT NULL,
	model_format VARCHAR NOT NULL,
	parameters INTEGER NOT NULL,
	epochs INTEGER NOT NULL,
	epochs_done INTEGER NOT NULL,
	steps_total INTEGER NOT NULL,
	steps_done INTEGER NOT NULL,
	service_s DOUBLE NOT NULL,
	lane INTEGER,
	turn_since_s DOUBLE,
	turn_reason VARCHAR,
	paused_s DOUBLE NOT NULL,
	paused_since_s DOUBLE,
	joined_at_s DOUBLE,
	ended_at_s DOUBLE,
	train_loss DOUBLE,
	train_accuracy DOUBLE,
	test_loss DOUBLE,
	test_accuracy DOUBLE,
	peak_memory_bytes BIGINT,
	cpu_s DOUBLE,
	memory_key VARCHAR NOT NULL,
	cause VARCHAR,
	remedy VARCHAR,
	checkpoint VARCHAR,
	checkpoint_step INTEGER,
	checkpoint_bytes BIGINT,
	checkpoint_at_s DOUBLE,
	artifact VARCHAR,
	artifact_bytes BIGINT,
	artifact_at_s DOUBLE,
	model_path VARCHAR,
	state_sha256 VARCHAR,
	PRIMARY KEY (run_id, name),
	FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
CREATE TABLE tokens (
	id VARCHAR NOT NULL,
	person VARCHAR NOT NULL,
	role VARCHAR NOT NULL,
	secret_sha256 VARCHAR NOT NULL,
	created_at_s DOUBLE NOT NULL,
	created_by VARCHAR NOT NULL,
	expires_at_s DOUBLE NOT NULL,
	revoked_at_s DOUBLE,
	PRIMARY KEY (id)
);
CREATE INDEX commands_open ON commands (run_id, applied_at_s);
CREATE INDEX ix_events_run_id ON events (run_id);
CREATE INDEX ix_runs_fingerprint ON runs (fingerprint);
CREATE INDEX ix_runs_state ON runs (state);
CREATE INDEX ix_slices_run_id ON slices (run_id);
CREATE INDEX memory_of_run ON memory_samples (run_id, source, at_s);
CREATE INDEX strata_of_run ON memory_strata (run_id, at_s);
