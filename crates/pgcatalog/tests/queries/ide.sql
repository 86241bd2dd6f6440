-- Queries of the kind that SQL IDEs send (written after them, not recorded): what the catalogs are asked, and what PostgreSQL 15 answers.

-- schemas
SELECT n.oid,n.*,d.description FROM pg_catalog.pg_namespace n LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=n.oid AND d.objsubid=0 AND d.classoid='pg_namespace'::regclass WHERE n.oid > 16000 ORDER BY nspname
----
=> oid	oid	nspname	nspowner	nspacl	description
16388	16388	main	10	\N	\N
16389	16389	sales	10	\N	who sells

-- tables
SELECT c.oid,c.relname,c.relkind,c.relowner,d.description,pg_catalog.pg_get_expr(c.relpartbound, c.oid) as partition_expr, pg_catalog.pg_get_partkeydef(c.oid) as partition_key FROM pg_catalog.pg_class c LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_class'::regclass WHERE c.relnamespace=16388 AND c.relkind not in ('i','I','c')
----
=> oid	relname	relkind	relowner	description	partition_expr	partition_key
16390	orders	r	10	what was ordered	\N	\N
16397	Mixed Case	r	10	\N	\N	\N
16407	big_orders	v	10	\N	\N	\N
16402	measures	r	10	\N	\N	\N

-- columns
SELECT c.relname,a.attname,a.attnum,a.atttypid,a.atttypmod,a.attnotnull,pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) as def_value,dsc.description,dep.objid FROM pg_catalog.pg_attribute a INNER JOIN pg_catalog.pg_class c ON (a.attrelid=c.oid) LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid=ad.adrelid AND a.attnum = ad.adnum) LEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid=dsc.objoid AND a.attnum = dsc.objsubid) LEFT OUTER JOIN pg_depend dep on dep.refobjid = a.attrelid AND dep.deptype = 'i' and dep.refobjsubid = a.attnum and dep.classid = dep.refclassid WHERE NOT a.attisdropped AND a.attnum > 0 AND c.relkind not in ('i','I','c') AND c.oid=16390 ORDER BY a.attnum
----
=> relname	attname	attnum	atttypid	atttypmod	attnotnull	def_value	description	objid
orders	id	1	20	-1	t	\N	\N	\N
orders	customer	2	23	-1	f	\N	\N	\N
orders	price	3	1700	786438	f	0	in euros	\N
orders	note	4	25	-1	f	\N	\N	\N
orders	placed	5	1114	-1	f	\N	\N	\N
orders	day	6	1082	-1	f	\N	\N	\N
orders	paid	7	16	-1	t	false	\N	\N
orders	tags	8	1009	-1	f	\N	\N	\N

-- constraints
SELECT c.oid,c.*,t.relname as tabrelname,rt.relnamespace as refnamespace,d.description, case when c.contype='c' then "substring"(pg_get_constraintdef(c.oid), 7) else null end consrc_copy FROM pg_catalog.pg_constraint c INNER JOIN pg_catalog.pg_class t ON t.oid=c.conrelid LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid=c.confrelid LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_constraint'::regclass WHERE c.conrelid=16390 ORDER BY c.oid
----
=> oid	oid	conname	connamespace	contype	condeferrable	condeferred	convalidated	conrelid	contypid	conindid	conparentid	confrelid	confupdtype	confdeltype	confmatchtype	conislocal	coninhcount	connoinherit	conkey	confkey	conpfeqop	conppeqop	conffeqop	confdelsetcols	conexclop	conbin	tabrelname	refnamespace	description	consrc_copy

-- indexes
SELECT i.*,i.indkey as keys,c.relname,c.relnamespace,c.relam,c.reltablespace,tc.relname as tabrelname,dsc.description,pg_catalog.pg_get_expr(i.indpred, i.indrelid) as pred_expr,pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) as expr,pg_catalog.pg_relation_size(i.indexrelid) as index_rel_size FROM pg_catalog.pg_index i INNER JOIN pg_catalog.pg_class c ON c.oid=i.indexrelid INNER JOIN pg_catalog.pg_class tc ON tc.oid=i.indrelid LEFT OUTER JOIN pg_catalog.pg_description dsc ON i.indexrelid=dsc.objoid WHERE i.indrelid=16390 ORDER BY tabrelname, c.relname
----
=> indexrelid	indrelid	indnatts	indnkeyatts	indisunique	indnullsnotdistinct	indisprimary	indisexclusion	indimmediate	indisclustered	indisvalid	indcheckxmin	indisready	indislive	indisreplident	indkey	indcollation	indclass	indoption	indexprs	indpred	keys	relname	relnamespace	relam	reltablespace	tabrelname	description	pred_expr	expr	index_rel_size

-- types
SELECT t.oid,t.typname,c.relkind,format_type(nullif(t.typbasetype, 0), t.typtypmod) as base_type_name, d.description FROM pg_catalog.pg_type t LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid=t.typelem LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid=t.typrelid LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid=d.objoid AND d.classoid='pg_type'::regclass WHERE t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory <> 'C') AND t.oid < 10000
----
=> oid	typname	relkind	base_type_name	description
-- 185 rows

-- type loading of a driver
SELECT ns.nspname, t.oid, t.typname, t.typtype, t.typnotnull, t.elemtypoid FROM (SELECT typ.oid, typ.typnamespace, typ.typname, typ.typtype, typ.typrelid, typ.typnotnull, typ.relkind, elemtyp.oid AS elemtypoid, elemtyp.typname AS elemtypname, elemcls.relkind AS elemrelkind, CASE WHEN elemproc.proname='array_recv' THEN 'a' ELSE elemtyp.typtype END AS elemtyptype FROM (SELECT typ.oid, typnamespace, typname, typrelid, typnotnull, relkind, typelem AS elemoid, CASE WHEN proc.proname='array_recv' THEN 'a' ELSE typ.typtype END AS typtype, CASE WHEN proc.proname='array_recv' THEN typ.typelem WHEN typ.typtype='r' THEN rngsubtype WHEN typ.typtype='m' THEN (SELECT rngtypid FROM pg_range WHERE rngmultitypid = typ.oid) WHEN typ.typtype='d' THEN typ.typbasetype END AS elemtypoid FROM pg_type AS typ LEFT JOIN pg_class AS cls ON (cls.oid = typ.typrelid) LEFT JOIN pg_proc AS proc ON proc.oid = typ.typreceive LEFT JOIN pg_range ON (pg_range.rngtypid = typ.oid)) AS typ LEFT JOIN pg_type AS elemtyp ON elemtyp.oid = elemtypoid LEFT JOIN pg_class AS elemcls ON (elemcls.oid = elemtyp.typrelid) LEFT JOIN pg_proc AS elemproc ON elemproc.oid = elemtyp.typreceive) AS t JOIN pg_namespace AS ns ON (ns.oid = typnamespace) WHERE t.oid < 10000 AND (typtype IN ('b', 'r', 'm', 'e', 'd') OR (typtype = 'c' AND relkind='c') OR (typtype = 'p' AND typname IN ('record', 'void', 'unknown'))) ORDER BY t.oid
----
=> nspname	oid	typname	typtype	typnotnull	elemtypoid
-- 85 rows

-- view definition
SELECT pg_get_viewdef('main.big_orders'::regclass, true)
----
=> pg_get_viewdef
 SELECT orders.id,\n    orders.price\n   FROM orders\n  WHERE orders.price > 100::numeric;
