"""A LLaVA small enough for tests, and a job that trains it."""

TABLES = """\
[llava]
base = "fp32"
[llava.vision]
hidden = 16
mlp = 32
depth = 2
heads = 2
image = 14
patch = 7
[llava.text]
hidden = 32
mlp = 48
depth = 2
heads = 2
vocabulary = 320
[llava.data]
conversations = "list.json"
tokenizer = "tokenizer.model"
max_length = 64
[policies.precision]
enabled = false
"""


def configuration(train: str, batch: int) -> str:
    """`train`: more lines of [train]."""
    return f'[train]\nmodel = "llava"\nthreads = 1\n{train}{TABLES}[data]\nbatch = {batch}\n'
