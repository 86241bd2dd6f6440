"""One program on Spark, in this process and with as many threads as there are tasks at once. Prints its seconds, without the start."""

import sys
import time

from pyspark.sql import SparkSession

program, source, out, threads = sys.argv[1:5]
spark = (
    SparkSession.builder.master(f"local[{threads}]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "4g")
    .config("spark.sql.shuffle.partitions", threads)
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
begin = time.monotonic()
if program == "wordcount":
    words = spark.read.text(source).selectExpr("explode(split(value, '\\\\s+')) AS word").where("word <> ''")
    words.groupBy("word").count().write.mode("overwrite").csv(out, sep="\t")
elif program == "terasort":
    records = spark.sparkContext.binaryRecords(source, 100).map(lambda record: (record[:10], record[10:]))
    records.sortByKey(numPartitions=int(threads)).map(lambda pair: pair[0] + pair[1]).saveAsPickleFile(out)
elif program == "aggregate":
    visits = spark.read.csv(source, sep="|", schema="address STRING, url STRING, date STRING, cents BIGINT")
    visits.createOrReplaceTempView("visits")
    answer = spark.sql("SELECT substr(address, 1, 7) AS address, sum(cents) AS cents FROM visits GROUP BY 1")
    answer.write.mode("overwrite").csv(out, sep="\t")
else:
    sys.exit(f"there is no {program} for Spark")
print(f"seconds {time.monotonic() - begin:.3f}")
spark.stop()
