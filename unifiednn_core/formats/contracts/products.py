"""Products of matrices."""

from unifiednn_core.formats.contracts.contract import each

CONTRACTS = each("""
linear bilinear matmul mm bmm addmm baddbmm einsum cosine_similarity
""")
