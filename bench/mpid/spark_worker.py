"""One program on Spark, in this process, with as many threads as there are ranks. Prints its seconds, without the start.

usage: spark_worker.py PROGRAM INPUT OUTPUT THREADS [ROUNDS [PATTERN | RANKINGS | WINDOW SLIDE]]        (exit status 64: it has no such program)

All of it is Spark's SQL or its library of machine learning, which run compiled in the JVM: Python only says what to do."""

import pathlib
import sys
import time

PROGRAMS = ("wordcount", "terasort", "aggregate", "pagerank", "kmeans", "grep", "index", "sliding", "join")
program, source, out, threads = sys.argv[1:5]
rounds = int(sys.argv[5]) if len(sys.argv) > 5 else 10
if program not in PROGRAMS:
    sys.exit(64)

from pyspark.sql import SparkSession  # noqa: E402
from pyspark.sql import functions as f  # noqa: E402

# One for each thread, but none of more than this: it would be sorted from disk.
PARTITION_BYTES = 512 * 1024 * 1024
size = sum(path.stat().st_size for path in pathlib.Path(source).rglob("*") if path.is_file())
partitions = max(int(threads), size // PARTITION_BYTES + 1)

spark = (
    SparkSession.builder.master(f"local[{threads}]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "4g")
    .config("spark.sql.shuffle.partitions", partitions)
    # Windows begin with the minutes of this zone.
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")


def wordcount():
    words = spark.read.text(source).selectExpr("explode(split(value, '\\\\s+')) AS word").where("word <> ''")
    words.groupBy("word").count().write.csv(out, sep="\t")


def terasort():
    # The records are printable, so that Spark's compiled sort of text can be used: from Python, records of bytes are far slower.
    records = spark.read.option("lineSep", "\r\n").text(source)
    records.orderBy(f.substring("value", 1, 10)).write.option("lineSep", "\r\n").text(out)


# Revenue is exact, so that sums do not depend on their order, and told in cents.
VISITS = (
    "sourceIP STRING, destURL STRING, visitDate STRING, adRevenue DECIMAL(12, 2), userAgent STRING, countryCode STRING, "
    "languageCode STRING, searchWord STRING, duration INT"
)
CENTS = "CAST(SUM(adRevenue) * 100 AS BIGINT) AS totalRevenue"


def aggregate():
    visits = spark.read.csv(source, sep="|", schema=VISITS)
    visits.groupBy("sourceIP").agg(f.expr(CENTS)).write.csv(out, sep="\t")


def pagerank():
    edges = spark.read.csv(source, sep="\t", schema="from BIGINT, to BIGINT")
    degrees = edges.groupBy("from").agg(f.count("*").alias("degree"))
    links = edges.join(degrees, "from").cache()
    nodes = edges.selectExpr("from AS id").union(edges.selectExpr("to AS id")).distinct().cache()
    bare = nodes.join(degrees, nodes.id == degrees["from"], "left_anti").cache()
    count = nodes.count()
    ranks = nodes.withColumn("rank", f.lit(1.0))
    for _ in range(rounds):
        dangling = ranks.join(bare, "id").agg(f.sum("rank")).first()[0] or 0.0
        everybody = 0.15 + 0.85 * dangling / count
        shares = links.join(ranks, links["from"] == ranks.id).selectExpr("to AS id", "rank / degree AS share")
        received = shares.groupBy("id").agg(f.sum("share").alias("share"))
        joined = nodes.join(received, "id", "left")
        # Otherwise the plan would grow with every round.
        ranks = joined.selectExpr("id", f"{everybody!r}D + 0.85D * coalesce(share, 0.0D) AS rank").localCheckpoint()
    ranks.write.csv(out, sep="\t")


def kmeans():
    from pyspark.ml.clustering import KMeans
    from pyspark.ml.functions import array_to_vector

    # Its first centres are drawn: the cost of a round is compared, not the answer.
    points = spark.read.text(source).select(f.split("value", " ").cast("array<double>").alias("numbers"))
    points = points.select(array_to_vector("numbers").alias("features")).cache()
    model = KMeans(k=8, maxIter=rounds, tol=0.0, initMode="random", seed=1).fit(points)
    print(f"rounds {model.summary.numIter}")


def grep():
    lines = spark.read.text(source)
    lines.where(f.col("value").contains(sys.argv[6])).write.text(out)


def index():
    # The number of the file as the generator has named it, and one that grows with the lines instead of their place in it.
    file = f.regexp_extract("_metadata.file_name", "([0-9]+)$", 1)
    lines = spark.read.text(source).select("value", file.alias("file"), f.monotonically_increasing_id().alias("line"))
    words = lines.select(f.explode(f.array_distinct(f.split("value", "\\s+"))).alias("word"), "file", "line").where("word <> ''")
    places = words.groupBy("word").agg(f.sort_array(f.collect_list(f.struct("file", "line"))).alias("places"))
    texts = f.transform("places", lambda place: f.concat_ws(":", place["file"], place["line"].cast("string")))
    places.select(f.concat_ws("\t", "word", f.array_join(texts, "\t")).alias("value")).write.text(out)


def sliding():
    window, slide = (f"{width} seconds" for width in sys.argv[6:8])
    events = spark.read.csv(source, sep="\t", schema="time BIGINT, key STRING")
    counts = events.groupBy(f.window(f.timestamp_seconds("time"), window, slide), "key").count()
    counts.select(f.col("window.end").cast("bigint").alias("end"), "key", "count").write.csv(out, sep="\t")


def join():
    visits = spark.read.csv(source, sep="|", schema=VISITS)
    ranks = spark.read.csv(sys.argv[6], sep="|", schema="pageURL STRING, pageRank INT, avgDuration INT")
    visits = visits.where("visitDate BETWEEN '1999-01-01' AND '2000-01-01'")
    joined = visits.join(ranks, visits.destURL == ranks.pageURL).groupBy("sourceIP").agg(f.avg("pageRank"), f.expr(CENTS))
    joined.orderBy(f.desc("totalRevenue")).write.csv(out, sep="\t")


begin = time.monotonic()
globals()[program]()
print(f"seconds {time.monotonic() - begin:.3f}")
spark.stop()
