-- Ninety sums over one column.
select
  sum(res_width + 0), sum(res_width + 1), sum(res_width + 2), sum(res_width + 3), sum(res_width + 4),
  sum(res_width + 5), sum(res_width + 6), sum(res_width + 7), sum(res_width + 8), sum(res_width + 9),
  sum(res_width + 10), sum(res_width + 11), sum(res_width + 12), sum(res_width + 13), sum(res_width + 14),
  sum(res_width + 15), sum(res_width + 16), sum(res_width + 17), sum(res_width + 18), sum(res_width + 19),
  sum(res_width + 20), sum(res_width + 21), sum(res_width + 22), sum(res_width + 23), sum(res_width + 24),
  sum(res_width + 25), sum(res_width + 26), sum(res_width + 27), sum(res_width + 28), sum(res_width + 29),
  sum(res_width + 30), sum(res_width + 31), sum(res_width + 32), sum(res_width + 33), sum(res_width + 34),
  sum(res_width + 35), sum(res_width + 36), sum(res_width + 37), sum(res_width + 38), sum(res_width + 39),
  sum(res_width + 40), sum(res_width + 41), sum(res_width + 42), sum(res_width + 43), sum(res_width + 44),
  sum(res_width + 45), sum(res_width + 46), sum(res_width + 47), sum(res_width + 48), sum(res_width + 49),
  sum(res_width + 50), sum(res_width + 51), sum(res_width + 52), sum(res_width + 53), sum(res_width + 54),
  sum(res_width + 55), sum(res_width + 56), sum(res_width + 57), sum(res_width + 58), sum(res_width + 59),
  sum(res_width + 60), sum(res_width + 61), sum(res_width + 62), sum(res_width + 63), sum(res_width + 64),
  sum(res_width + 65), sum(res_width + 66), sum(res_width + 67), sum(res_width + 68), sum(res_width + 69),
  sum(res_width + 70), sum(res_width + 71), sum(res_width + 72), sum(res_width + 73), sum(res_width + 74),
  sum(res_width + 75), sum(res_width + 76), sum(res_width + 77), sum(res_width + 78), sum(res_width + 79),
  sum(res_width + 80), sum(res_width + 81), sum(res_width + 82), sum(res_width + 83), sum(res_width + 84),
  sum(res_width + 85), sum(res_width + 86), sum(res_width + 87), sum(res_width + 88), sum(res_width + 89)
from visits;
