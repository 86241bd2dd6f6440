-- psycopg 3.3.9: what the catalogs are asked, and what PostgreSQL 15 answers.

-- TypeInfo
SELECT
    typname AS name, oid, typarray AS array_oid,
    oid::regtype::text AS regtype, typdelim AS delimiter
FROM pg_type t
WHERE t.oid = to_regtype('int4')
ORDER BY t.oid
----
=> name	oid	array_oid	regtype	delimiter
int4	23	1007	integer	,

-- TypeInfo
SELECT name, oid, array_oid, regtype, array_agg(label) AS labels
FROM (
    SELECT
        t.typname AS name, t.oid AS oid, t.typarray AS array_oid,
        t.oid::regtype::text AS regtype, e.enumlabel AS label
    FROM pg_type t
    LEFT JOIN  pg_enum e
    ON e.enumtypid = t.oid
    WHERE t.oid = to_regtype('nope')
    ORDER BY e.enumsortorder
) x
GROUP BY name, oid, array_oid, regtype
----
=> name	oid	array_oid	regtype	labels

-- TypeInfo
SELECT
    t.typname AS name, t.oid AS oid, t.typarray AS array_oid,
    t.oid::regtype::text AS regtype,
    coalesce(a.fnames, '{}') AS field_names,
    coalesce(a.ftypes, '{}') AS field_types
FROM pg_type t
LEFT JOIN (
    SELECT
        attrelid,
        array_agg(attname) AS fnames,
        array_agg(atttypid) AS ftypes
    FROM (
        SELECT a.attrelid, a.attname, a.atttypid
        FROM pg_attribute a
        JOIN pg_type t ON t.typrelid = a.attrelid
        WHERE t.oid = to_regtype('pg_am')
        AND a.attnum > 0
        AND NOT a.attisdropped
        ORDER BY a.attnum
    ) x
    GROUP BY attrelid
) a ON a.attrelid = t.typrelid
WHERE t.oid = to_regtype('pg_am')
----
=> name	oid	array_oid	regtype	field_names	field_types
pg_am	10015	10014	pg_am	{oid,amname,amhandler,amtype}	{26,19,24,18}

-- TypeInfo
SELECT t.typname AS name, t.oid AS oid, t.typarray AS array_oid,
    t.oid::regtype::text AS regtype,
    r.rngsubtype AS subtype_oid
FROM pg_type t
JOIN pg_range r ON t.oid = r.rngtypid
WHERE t.oid = to_regtype('int4range')
----
=> name	oid	array_oid	regtype	subtype_oid
int4range	3904	3905	int4range	23

-- TypeInfo
SELECT t.typname AS name, t.oid AS oid, t.typarray AS array_oid,
    t.oid::regtype::text AS regtype,
    r.rngtypid AS range_oid, r.rngsubtype AS subtype_oid
FROM pg_type t
JOIN pg_range r ON t.oid = r.rngmultitypid
WHERE t.oid = to_regtype('int4multirange')
----
=> name	oid	array_oid	regtype	range_oid	subtype_oid
int4multirange	4451	6150	int4multirange	3904	23
