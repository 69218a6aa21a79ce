from tests.habits.hint import Row

ROWS: list[Row] = []
