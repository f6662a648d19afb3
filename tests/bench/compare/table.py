"""Every row there is."""
from . import rows_attention, rows_cpu, rows_matmul, rows_memory
from . import rows_further, rows_further_attention, rows_further_memory

SOURCES = (rows_matmul, rows_attention, rows_memory, rows_further, rows_further_attention, rows_further_memory,
           rows_cpu)


def rows():
    return [row for source in SOURCES for row in source.rows()]
