-- Functions and information_schema, asked for themselves: what the catalogs are asked, and what PostgreSQL 15 answers.

-- names of objects
SELECT 'orders'::regclass, 'sales.region'::regclass::oid, 16411::regclass, 'main.orders'::regclass::text, '"Mixed Case"'::regclass, 'pg_class'::regclass, 'int4'::regtype, 'numeric'::regtype::oid
----
=> regclass	oid	regclass	text	regclass	regclass	regtype	oid
orders	16411	sales.region	orders	"Mixed Case"	pg_class	integer	1700

-- names of objects in conditions
SELECT relname FROM pg_class WHERE oid = 'orders'::regclass OR oid::regclass::text = 'sales.region'
----
=> relname
orders
region

-- registers
SELECT current_user, current_database(), current_schema, current_schema(), current_schemas(false), current_schemas(true), session_user, current_catalog
----
=> current_user	current_database	current_schema	current_schema	current_schemas	current_schemas	session_user	current_catalog
harrier	warehouse	main	main	{main}	{pg_catalog,main}	harrier	warehouse

-- to_reg
SELECT to_regclass('nothing'), to_regclass('orders')::oid, to_regtype('character varying'), to_regtype('nothing'), to_regnamespace('sales')::oid, to_regrole('analyst')::oid
----
=> to_regclass	to_regclass	to_regtype	to_regtype	to_regnamespace	to_regrole
\N	16390	character varying	\N	16389	16385

-- types
SELECT format_type(1700, 786438), format_type(1043, 14), format_type(1184, 3), format_type(1231, -1), format_type(23, NULL), format_type(0, NULL), format_type(99999, NULL), format_type(18, NULL), format_type(3904, NULL)
----
=> format_type	format_type	format_type	format_type	format_type	format_type	format_type	format_type	format_type
numeric(12,2)	character varying(10)	timestamp(3) with time zone	numeric[]	integer	-	???	"char"	int4range

-- sizes
SELECT pg_size_pretty(10239::bigint), pg_size_pretty(10240::bigint), pg_size_pretty(123456789::bigint), pg_size_pretty((-20000)::bigint)
----
=> pg_size_pretty	pg_size_pretty	pg_size_pretty	pg_size_pretty
10239 bytes	10 kB	118 MB	-20 kB

-- quoting
SELECT quote_ident('Mixed Case'), quote_ident('plain'), quote_ident('select'), quote_literal('it''s'), quote_nullable(NULL), format('%I.%I = %L', 'main', 'Mixed Case', 'x')
----
=> quote_ident	quote_ident	quote_ident	quote_literal	quote_nullable	format
"Mixed Case"	plain	"select"	'it''s'	NULL	main."Mixed Case" = 'x'

-- privileges of the user
SELECT has_table_privilege('orders', 'SELECT'), has_schema_privilege('sales', 'USAGE'), has_database_privilege('warehouse', 'CREATE'), has_table_privilege(16411, 'insert, update')
----
=> has_table_privilege	has_schema_privilege	has_database_privilege	has_table_privilege
t	t	t	t

-- privileges of another
SELECT has_table_privilege('analyst', 'sales.region', 'SELECT'), has_table_privilege('analyst', 'orders', 'SELECT'), has_table_privilege('analyst', 'sales.region', 'INSERT'), has_column_privilege('analyst', 'sales.region', 'name', 'SELECT'), pg_has_role('analyst', 'readers', 'MEMBER'), pg_has_role('readers', 'analyst', 'MEMBER')
----
=> has_table_privilege	has_table_privilege	has_table_privilege	has_column_privilege	pg_has_role	pg_has_role
t	f	f	t	t	f

-- comments
SELECT obj_description('orders'::regclass, 'pg_class'), col_description('orders'::regclass, 3), obj_description('sales'::regnamespace, 'pg_namespace'), obj_description(16), obj_description(16, 'pg_type')
----
=> obj_description	col_description	obj_description	obj_description	obj_description
what was ordered	in euros	who sells	boolean, 'true'/'false'	boolean, 'true'/'false'

-- owners
SELECT pg_get_userbyid(10), pg_get_userbyid(16385), pg_get_userbyid(99)
----
=> pg_get_userbyid	pg_get_userbyid	pg_get_userbyid
harrier	analyst	unknown (OID=99)

-- functions of PostgreSQL
SELECT pg_get_function_arguments(1397), pg_get_function_result(1397), pg_get_function_identity_arguments(1397)
----
=> pg_get_function_arguments	pg_get_function_result	pg_get_function_identity_arguments
integer	integer	integer

-- tables of information_schema
SELECT * FROM information_schema.tables WHERE table_schema IN ('main', 'sales') AND table_name <> 'big_orders'
----
=> table_catalog	table_schema	table_name	table_type	self_referencing_column_name	reference_generation	user_defined_type_catalog	user_defined_type_schema	user_defined_type_name	is_insertable_into	is_typed	commit_action
warehouse	main	orders	BASE TABLE	\N	\N	\N	\N	\N	YES	NO	\N
warehouse	main	Mixed Case	BASE TABLE	\N	\N	\N	\N	\N	YES	NO	\N
warehouse	sales	region	BASE TABLE	\N	\N	\N	\N	\N	YES	NO	\N
warehouse	main	measures	BASE TABLE	\N	\N	\N	\N	\N	YES	NO	\N

-- columns of information_schema
SELECT table_name, column_name, ordinal_position, column_default, is_nullable, data_type, character_octet_length, numeric_precision, numeric_precision_radix, numeric_scale, datetime_precision, udt_name, is_updatable FROM information_schema.columns WHERE table_schema = 'main' AND table_name <> 'big_orders'
----
=> table_name	column_name	ordinal_position	column_default	is_nullable	data_type	character_octet_length	numeric_precision	numeric_precision_radix	numeric_scale	datetime_precision	udt_name	is_updatable
orders	id	1	\N	NO	bigint	\N	64	2	0	\N	int8	YES
orders	customer	2	\N	YES	integer	\N	32	2	0	\N	int4	YES
orders	price	3	0	YES	numeric	\N	12	10	2	\N	numeric	YES
measures	span	7	\N	YES	interval	\N	\N	\N	\N	6	interval	YES
measures	plain	8	\N	YES	numeric	\N	12	10	2	\N	numeric	YES
measures	doc	9	\N	YES	json	\N	\N	\N	\N	\N	json	YES
orders	placed	5	\N	YES	timestamp without time zone	\N	\N	\N	\N	6	timestamp	YES
orders	day	6	\N	YES	date	\N	\N	\N	\N	0	date	YES
orders	paid	7	false	NO	boolean	\N	\N	\N	\N	\N	bool	YES
Mixed Case	a	1	\N	YES	integer	\N	32	2	0	\N	int4	YES
measures	small	1	\N	YES	smallint	\N	16	2	0	\N	int2	YES
measures	real4	2	\N	YES	real	\N	24	2	\N	\N	float4	YES
measures	real8	3	\N	YES	double precision	\N	53	2	\N	\N	float8	YES
measures	raw	4	\N	YES	bytea	\N	\N	\N	\N	\N	bytea	YES
measures	at	5	\N	YES	timestamp with time zone	\N	\N	\N	\N	6	timestamptz	YES
measures	t	6	\N	YES	time without time zone	\N	\N	\N	\N	6	time	YES
orders	note	4	\N	YES	text	1073741824	\N	\N	\N	\N	text	YES
Mixed Case	B c	2	\N	YES	text	1073741824	\N	\N	\N	\N	text	YES
orders	tags	8	\N	YES	ARRAY	\N	\N	\N	\N	\N	_text	YES

-- schemata of information_schema
SELECT schema_name, schema_owner FROM information_schema.schemata WHERE schema_name NOT LIKE 'pg_t%'
----
=> schema_name	schema_owner
sales	harrier
main	harrier
information_schema	harrier
pg_catalog	harrier

-- views of information_schema
SELECT table_schema, table_name, check_option FROM information_schema.views WHERE table_schema = 'main'
----
=> table_schema	table_name	check_option
main	big_orders	NONE

-- a qualified column of information_schema
SELECT information_schema.tables.table_name FROM information_schema.tables WHERE tables.table_schema = 'sales'
----
=> table_name
region

-- constraints of information_schema
SELECT tc.constraint_name, kcu.column_name FROM information_schema.table_constraints tc JOIN information_schema.key_column_usage kcu USING (constraint_name, table_schema) WHERE tc.constraint_type = 'PRIMARY KEY' AND tc.table_name = 'orders'
----
=> constraint_name	column_name

-- tables of pg_tables
SELECT schemaname, tablename, tableowner FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')
----
=> schemaname	tablename	tableowner
main	orders	harrier
main	Mixed Case	harrier
sales	region	harrier
main	measures	harrier

-- a star and a subquery
SELECT *, (SELECT n.nspname FROM pg_namespace n WHERE n.oid = i.inhparent) FROM pg_inherits i
----
=> inhrelid	inhparent	inhseqno	inhdetachpending	nspname

-- correlated subqueries
SELECT c.relname, (SELECT nspname FROM pg_namespace WHERE oid = relnamespace), (SELECT count(*) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0), EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid) FROM pg_class c WHERE c.oid IN (16390, 16411)
----
=> relname	nspname	count	exists
orders	main	8	f
region	sales	2	f

-- a common table expression of a system relation's name
WITH pg_class AS (SELECT 1 AS x) SELECT x FROM pg_class
----
=> x
1

-- columns of one name
SELECT 1, 1, 'a', NULL, NULL, oid, oid FROM pg_namespace WHERE nspname = 'sales'
----
=> ?column?	?column?	?column?	?column?	?column?	oid	oid
1	1	a	\N	\N	16389	16389

-- any and all
SELECT nspname FROM pg_namespace WHERE nspname = ANY ('{main,sales}') AND oid <> ALL (ARRAY[1, 2]) AND nspname = ANY (current_schemas(true))
----
=> nspname
main

-- escapes
SELECT nspname FROM pg_namespace WHERE nspname LIKE 'pg!_c%' ESCAPE '!'
----
=> nspname
pg_catalog

-- names of columns
SELECT 1 + 1, 'x'::text, now() IS NULL, coalesce(NULL, 1), CASE WHEN true THEN 1 END, count(*), -1, '2020-01-01'::date, ARRAY[1], upper('a'), (SELECT 2), (SELECT 3 AS three), extract(year FROM date '2020-01-01'), true
----
=> ?column?	text	?column?	coalesce	case	count	?column?	date	array	upper	?column?	three	extract	?column?
2	x	f	1	1	1	-1	2020-01-01	{1}	A	2	3	2020	t

-- a table of keywords
SELECT word, catcode FROM pg_get_keywords() WHERE word IN ('select', 'sum')
----
=> word	catcode
select	R

-- encodings
SELECT pg_encoding_to_char(6), getdatabaseencoding(), pg_client_encoding(), pg_char_to_encoding('utf-8')
----
=> pg_encoding_to_char	getdatabaseencoding	pg_client_encoding	pg_char_to_encoding
UTF8	UTF8	UTF8	6

-- privileges where nothing was granted
SELECT acldefault('c', 10), acldefault('r', 10), acldefault('s', 10), acldefault('d', 10), acldefault('f', 10), acldefault('l', 10), acldefault('L', 10), acldefault('n', 10), acldefault('p', 10), acldefault('t', 10), acldefault('F', 10), acldefault('S', 10), acldefault('T', 10)
----
=> acldefault	acldefault	acldefault	acldefault	acldefault	acldefault	acldefault	acldefault	acldefault	acldefault	acldefault	acldefault	acldefault
{}	{harrier=arwdDxt/harrier}	{harrier=rwU/harrier}	{=Tc/harrier,harrier=CTc/harrier}	{=X/harrier,harrier=X/harrier}	{=U/harrier,harrier=U/harrier}	{harrier=rw/harrier}	{harrier=UC/harrier}	{harrier=sA/harrier}	{harrier=C/harrier}	{harrier=U/harrier}	{harrier=U/harrier}	{=U/harrier,harrier=U/harrier}

-- what is found without its schema
SELECT pg_type_is_visible('int4'::regtype), pg_type_is_visible((SELECT t.oid FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE n.nspname = 'information_schema' AND t.typname = 'yes_or_no')), pg_type_is_visible(0), pg_table_is_visible('orders'::regclass), pg_table_is_visible('sales.region'::regclass)
----
=> pg_type_is_visible	pg_type_is_visible	pg_type_is_visible	pg_table_is_visible	pg_table_is_visible
t	f	\N	t	f
