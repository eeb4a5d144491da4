// One file on its way to the server, in slices, so that it continues after a lost connection, a pause or a reload.
// unifiednn_core/web/uploads.py describes the routes.

const SLICE_BYTES = 8 * 1024 * 1024;
const HASHED_BYTES = 64 * 1024 * 1024; // a browser can hash only a file in memory; the server alone hashes larger ones
const WAITS_S = [1, 2, 4, 8, 15];
const UNREADABLE = { title: "File", message: "The file cannot be read any more.", remedy: "Choose it again." };

class Transfer {
  constructor(file, address, kinds) {
    Object.assign(this, { file, address, kinds, state: "starting", offset: 0, inFlight: 0, speed: 0, findings: [] });
    this.memo = ["unifiednn-upload", address, kinds.join("+"), file.name, file.size, file.lastModified].join("|");
    this.changed = () => {};
    this.wake = () => {};
  }

  get sent() {
    return Math.min(this.offset + this.inFlight, this.file.size);
  }

  get over() {
    return ["sent", "refused", "dropped"].includes(this.state);
  }

  async run() {
    let failures = 0;
    while (!this.over) {
      if (this.state === "paused") {
        await new Promise((wake) => (this.wake = wake));
        continue;
      }
      const answer = this.id ? await this.sendSlice() : await this.begin();
      if (this.over || this.state === "paused") continue;
      if (answer.done) {
        failures = 0;
        if (this.id && this.offset >= this.file.size) this.become("sent");
      } else if (answer.findings) {
        this.forget();
        this.findings = answer.findings;
        this.become("refused");
      } else {
        this.speed = 0;
        this.become("waiting");
        await this.pauseFor(WAITS_S[Math.min(failures++, WAITS_S.length - 1)]);
        if (!this.over && this.state !== "paused") await this.ask();
      }
    }
  }

  pause() {
    this.become("paused");
    this.request?.abort();
  }

  resume() {
    this.become("sending");
    this.inFlight = 0;
    this.stale = true; // the server may have taken more than it could tell
    this.wake();
  }

  drop() {
    this.become("dropped");
    this.request?.abort();
    this.wake();
    this.forget();
    if (this.id) fetch(`${this.address}/${this.id}`, { method: "DELETE" }).catch(() => {});
  }

  // -- inside

  become(state) {
    this.state = state;
    this.changed();
  }

  goOn() {
    if (!this.over && this.state !== "paused") this.become("sending");
  }

  async begin() {
    try {
      this.id = localStorage.getItem(this.memo);
    } catch {} // no storage in this browser: nothing is remembered over a reload
    if (this.id && (await this.ask())) return { done: true };
    if (this.id) return {}; // no answer: it may be there still
    const hash = await this.hash();
    const body = { filename: this.file.name, size_bytes: this.file.size, sha256: hash, kinds: this.kinds };
    const answer = await this.exchange("POST", this.address, JSON.stringify(body));
    if (answer.status !== 201) return answer;
    this.id = answer.json.upload_id;
    try {
      localStorage.setItem(this.memo, this.id);
    } catch {}
    if (this.state === "dropped") this.drop(); // while it was being begun
    this.goOn();
    return { done: true };
  }

  async hash() {
    if (this.file.size > HASHED_BYTES || !globalThis.crypto?.subtle) return null;
    try {
      const digest = await crypto.subtle.digest("SHA-256", await this.file.arrayBuffer());
      return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    } catch {
      return null; // reading the first slice reports an unreadable file
    }
  }

  /** Asks for the offset to continue at; an upload that the server has forgotten begins anew. */
  async ask() {
    if (!this.id) return false;
    const answer = await this.exchange("GET", `${this.address}/${this.id}`);
    if (answer.status === 404) {
      this.forget();
      this.id = null;
      this.offset = 0;
    }
    if (answer.status !== 200) return false;
    this.offset = answer.json.offset_bytes;
    this.inFlight = 0;
    this.stale = false;
    this.goOn();
    return true;
  }

  async sendSlice() {
    if (this.stale && !(await this.ask())) return {};
    if (this.offset >= this.file.size) return { done: true };
    let slice;
    try {
      slice = await this.file.slice(this.offset, this.offset + SLICE_BYTES).arrayBuffer();
    } catch {
      return { findings: [UNREADABLE] };
    }
    const begun = performance.now();
    const before = this.speed;
    const moved = ({ loaded }) => {
      const now = loaded / Math.max(0.05, (performance.now() - begun) / 1000);
      this.inFlight = loaded;
      this.speed = before ? 0.7 * before + 0.3 * now : now;
      this.changed();
    };
    const headers = { "Upload-Offset": String(this.offset), "Content-Type": "application/offset+octet-stream" };
    const answer = await this.exchange("PATCH", `${this.address}/${this.id}`, slice, headers, moved);
    this.inFlight = 0;
    if (answer.status !== 204) return answer;
    this.offset += slice.byteLength;
    this.changed();
    return { done: true };
  }

  /** One request; without an answer, or with one that a moment may change, only its status comes back. */
  exchange(method, address, body = null, headers = {}, moved = null) {
    return new Promise((settle) => {
      const request = new XMLHttpRequest();
      if (moved) this.request = request; // a pause may abort bytes, but no beginning
      request.open(method, address);
      for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
      if (moved) request.upload.onprogress = moved;
      request.onloadend = () => {
        let json = null;
        try {
          json = JSON.parse(request.responseText || "null");
        } catch {}
        const final = [401, 403, 422].includes(request.status) ? (json?.findings ?? [UNREADABLE]) : null;
        settle({ status: request.status, json, findings: final });
      };
      request.send(body);
    });
  }

  pauseFor(seconds) {
    return new Promise((wake) => {
      this.wake = wake;
      setTimeout(wake, seconds * 1000);
    });
  }

  forget() {
    try {
      localStorage.removeItem(this.memo);
    } catch {}
  }
}
