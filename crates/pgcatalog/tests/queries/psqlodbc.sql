-- psqlODBC 13.02: what the catalogs are asked, and what PostgreSQL 15 answers.

-- SQLTables
select relname, nspname, relkind from pg_catalog.pg_class c, pg_catalog.pg_namespace n where relkind in ('r', 'v', 'm', 'f', 'p') and nspname not in ('pg_catalog', 'information_schema', 'pg_toast', 'pg_temp_1') and n.oid = relnamespace order by nspname, relname
----
=> relname	nspname	relkind
Mixed Case	main	r
big_orders	main	v
measures	main	r
orders	main	r
region	sales	r

-- SQLTables like
select relname, nspname, relkind from pg_catalog.pg_class c, pg_catalog.pg_namespace n where relkind in ('r', 'v', 'm', 'f', 'p') and nspname like 'main' and relname like 'o%' and nspname not in ('pg_catalog', 'information_schema', 'pg_toast', 'pg_temp_1') and n.oid = relnamespace order by nspname, relname
----
=> relname	nspname	relkind
orders	main	r

-- SQLTables schemas
select NULL, nspname, NULL from pg_catalog.pg_namespace n where true and nspname not in ('pg_catalog', 'information_schema', 'pg_toast', 'pg_temp_1') order by nspname
----
=> ?column?	nspname	?column?
\N	main	\N
\N	sales	\N

-- SQLTables catalogs
select NULL, NULL, NULL
----
=> ?column?	?column?	?column?
\N	\N	\N

-- SQLColumns
select n.nspname, c.relname, a.attname, a.atttypid, t.typname, a.attnum, a.attlen, a.atttypmod, a.attnotnull, c.relhasrules, c.relkind, c.oid, pg_get_expr(d.adbin, d.adrelid), case t.typtype when 'd' then t.typbasetype else 0 end, t.typtypmod, 0, attidentity, c.relhassubclass from (((pg_catalog.pg_class c inner join pg_catalog.pg_namespace n on n.oid = c.relnamespace and c.relname like 'orders' and n.nspname like 'main') inner join pg_catalog.pg_attribute a on (not a.attisdropped) and a.attnum > 0 and a.attrelid = c.oid) inner join pg_catalog.pg_type t on t.oid = a.atttypid) left outer join pg_attrdef d on a.atthasdef and d.adrelid = a.attrelid and d.adnum = a.attnum order by n.nspname, c.relname, attnum
----
=> nspname	relname	attname	atttypid	typname	attnum	attlen	atttypmod	attnotnull	relhasrules	relkind	oid	pg_get_expr	case	typtypmod	?column?	attidentity	relhassubclass
main	orders	id	20	int8	1	8	-1	t	f	r	16390	\N	0	-1	0		f
main	orders	customer	23	int4	2	4	-1	f	f	r	16390	\N	0	-1	0		f
main	orders	price	1700	numeric	3	-1	786438	f	f	r	16390	0	0	-1	0		f
main	orders	note	25	text	4	-1	-1	f	f	r	16390	\N	0	-1	0		f
main	orders	placed	1114	timestamp	5	8	-1	f	f	r	16390	\N	0	-1	0		f
main	orders	day	1082	date	6	4	-1	f	f	r	16390	\N	0	-1	0		f
main	orders	paid	16	bool	7	1	-1	t	f	r	16390	false	0	-1	0		f
main	orders	tags	1009	_text	8	-1	-1	f	f	r	16390	\N	0	-1	0		f

-- SQLColumns schema
select n.nspname, c.relname, a.attname, a.atttypid, t.typname, a.attnum, a.attlen, a.atttypmod, a.attnotnull, c.relhasrules, c.relkind, c.oid, pg_get_expr(d.adbin, d.adrelid), case t.typtype when 'd' then t.typbasetype else 0 end, t.typtypmod, 0, attidentity, c.relhassubclass from (((pg_catalog.pg_class c inner join pg_catalog.pg_namespace n on n.oid = c.relnamespace and c.relname like '%' and n.nspname like 'main') inner join pg_catalog.pg_attribute a on (not a.attisdropped) and a.attnum > 0 and a.attrelid = c.oid) inner join pg_catalog.pg_type t on t.oid = a.atttypid) left outer join pg_attrdef d on a.atthasdef and d.adrelid = a.attrelid and d.adnum = a.attnum order by n.nspname, c.relname, attnum
----
=> nspname	relname	attname	atttypid	typname	attnum	attlen	atttypmod	attnotnull	relhasrules	relkind	oid	pg_get_expr	case	typtypmod	?column?	attidentity	relhassubclass
main	Mixed Case	a	23	int4	1	4	-1	f	f	r	16397	\N	0	-1	0		f
main	Mixed Case	B c	25	text	2	-1	-1	f	f	r	16397	\N	0	-1	0		f
main	big_orders	id	20	int8	1	8	-1	f	t	v	16407	\N	0	-1	0		f
main	big_orders	price	1700	numeric	2	-1	786438	f	t	v	16407	\N	0	-1	0		f
main	measures	small	21	int2	1	2	-1	f	f	r	16402	\N	0	-1	0		f
main	measures	real4	700	float4	2	4	-1	f	f	r	16402	\N	0	-1	0		f
main	measures	real8	701	float8	3	8	-1	f	f	r	16402	\N	0	-1	0		f
main	measures	raw	17	bytea	4	-1	-1	f	f	r	16402	\N	0	-1	0		f
main	measures	at	1184	timestamptz	5	8	-1	f	f	r	16402	\N	0	-1	0		f
main	measures	t	1083	time	6	8	-1	f	f	r	16402	\N	0	-1	0		f
main	measures	span	1186	interval	7	16	-1	f	f	r	16402	\N	0	-1	0		f
main	measures	plain	1700	numeric	8	-1	786438	f	f	r	16402	\N	0	-1	0		f
main	measures	doc	114	json	9	-1	-1	f	f	r	16402	\N	0	-1	0		f
main	orders	id	20	int8	1	8	-1	t	f	r	16390	\N	0	-1	0		f
main	orders	customer	23	int4	2	4	-1	f	f	r	16390	\N	0	-1	0		f
main	orders	price	1700	numeric	3	-1	786438	f	f	r	16390	0	0	-1	0		f
main	orders	note	25	text	4	-1	-1	f	f	r	16390	\N	0	-1	0		f
main	orders	placed	1114	timestamp	5	8	-1	f	f	r	16390	\N	0	-1	0		f
main	orders	day	1082	date	6	4	-1	f	f	r	16390	\N	0	-1	0		f
main	orders	paid	16	bool	7	1	-1	t	f	r	16390	false	0	-1	0		f
main	orders	tags	1009	_text	8	-1	-1	f	f	r	16390	\N	0	-1	0		f

-- SQLPrimaryKeys
select ta.attname, ia.attnum, ic.relname, n.nspname, tc.relname from pg_catalog.pg_attribute ta, pg_catalog.pg_attribute ia, pg_catalog.pg_class tc, pg_catalog.pg_index i, pg_catalog.pg_namespace n, pg_catalog.pg_class ic where tc.relname = 'orders' AND n.nspname = 'main' AND tc.oid = i.indrelid AND n.oid = tc.relnamespace AND i.indisprimary = 't' AND ia.attrelid = i.indexrelid AND ta.attrelid = i.indrelid AND ta.attnum = i.indkey[ia.attnum-1] AND (NOT ta.attisdropped) AND (NOT ia.attisdropped) AND ic.oid = i.indexrelid order by ia.attnum
----
=> attname	attnum	relname	nspname	relname

-- SQLPrimaryKeys
select ta.attname, ia.attnum, ic.relname, n.nspname, NULL from pg_catalog.pg_attribute ta, pg_catalog.pg_attribute ia, pg_catalog.pg_class ic, pg_catalog.pg_index i, pg_catalog.pg_namespace n where ic.relname = 'orders_pkey' AND n.nspname = 'main' AND ic.oid = i.indexrelid AND n.oid = ic.relnamespace AND ia.attrelid = i.indexrelid AND ta.attrelid = i.indrelid AND ta.attnum = i.indkey[ia.attnum-1] AND (NOT ta.attisdropped) AND (NOT ia.attisdropped) order by ia.attnum
----
=> attname	attnum	relname	nspname	?column?

-- SQLForeignKeys
select	'warehouse'::name as "PKTABLE_CAT",
	n2.nspname as "PKTABLE_SCHEM",
	c2.relname as "PKTABLE_NAME",
	a2.attname as "PKCOLUMN_NAME",
	'warehouse'::name as "FKTABLE_CAT",
	n1.nspname as "FKTABLE_SCHEM",
	c1.relname as "FKTABLE_NAME",
	a1.attname as "FKCOLUMN_NAME",
	i::int2 as "KEY_SEQ",
	case ref.confupdtype
		when 'c' then 0::int2
		when 'n' then 2::int2
		when 'd' then 4::int2
		when 'r' then 1::int2
		else 3::int2
	end as "UPDATE_RULE",
	case ref.confdeltype
		when 'c' then 0::int2
		when 'n' then 2::int2
		when 'd' then 4::int2
		when 'r' then 1::int2
		else 3::int2
	end as "DELETE_RULE",
	ref.conname as "FK_NAME",
	cn.conname as "PK_NAME",
	case
		when ref.condeferrable then
			case
			when ref.condeferred then 5::int2
			else 6::int2
			end
		else 7::int2
	end as "DEFERRABILITY"
 from
 ((((((( (select cn.oid, conrelid, conkey, confrelid, confkey,
	 generate_series(array_lower(conkey, 1), array_upper(conkey, 1)) as i,
	 confupdtype, confdeltype, conname,
	 condeferrable, condeferred
  from pg_catalog.pg_constraint cn,
	pg_catalog.pg_class c,
	pg_catalog.pg_namespace n
  where contype = 'f' 
   and  confrelid = c.oid
   and  relname = 'orders'
   and  n.oid = c.relnamespace
   and  n.nspname = 'main'
 ) ref
 inner join pg_catalog.pg_class c1
  on c1.oid = ref.conrelid)
 inner join pg_catalog.pg_namespace n1
  on  n1.oid = c1.relnamespace)
 inner join pg_catalog.pg_attribute a1
  on  a1.attrelid = c1.oid
  and  a1.attnum = conkey[i])
 inner join pg_catalog.pg_class c2
  on  c2.oid = ref.confrelid)
 inner join pg_catalog.pg_namespace n2
  on  n2.oid = c2.relnamespace)
 inner join pg_catalog.pg_attribute a2
  on  a2.attrelid = c2.oid
  and  a2.attnum = confkey[i])
 left outer join pg_catalog.pg_constraint cn
  on cn.conrelid = ref.confrelid
  and cn.contype = 'p')
  order by ref.oid, ref.i
----
=> PKTABLE_CAT	PKTABLE_SCHEM	PKTABLE_NAME	PKCOLUMN_NAME	FKTABLE_CAT	FKTABLE_SCHEM	FKTABLE_NAME	FKCOLUMN_NAME	KEY_SEQ	UPDATE_RULE	DELETE_RULE	FK_NAME	PK_NAME	DEFERRABILITY

-- SQLForeignKeys
select n.nspname, c.relname, a.attname, a.atttypid, t.typname, a.attnum, a.attlen, a.atttypmod, a.attnotnull, c.relhasrules, c.relkind, c.oid, pg_get_expr(d.adbin, d.adrelid), case t.typtype when 'd' then t.typbasetype else 0 end, t.typtypmod, 0, attidentity, c.relhassubclass from (((pg_catalog.pg_class c inner join pg_catalog.pg_namespace n on n.oid = c.relnamespace and c.oid = 2615) inner join pg_catalog.pg_attribute a on (not a.attisdropped) and a.attnum > 0 and a.attrelid = c.oid) inner join pg_catalog.pg_type t on t.oid = a.atttypid) left outer join pg_attrdef d on a.atthasdef and d.adrelid = a.attrelid and d.adnum = a.attnum order by n.nspname, c.relname, attnum
----
=> nspname	relname	attname	atttypid	typname	attnum	attlen	atttypmod	attnotnull	relhasrules	relkind	oid	pg_get_expr	case	typtypmod	?column?	attidentity	relhassubclass
pg_catalog	pg_namespace	oid	26	oid	1	4	-1	t	f	r	2615	\N	0	-1	0		f
pg_catalog	pg_namespace	nspname	19	name	2	64	-1	t	f	r	2615	\N	0	-1	0		f
pg_catalog	pg_namespace	nspowner	26	oid	3	4	-1	t	f	r	2615	\N	0	-1	0		f
pg_catalog	pg_namespace	nspacl	1034	_aclitem	4	-1	-1	f	f	r	2615	\N	0	-1	0		f

-- SQLForeignKeys
select n.nspname, c.relname, a.attname, a.atttypid, t.typname, a.attnum, a.attlen, a.atttypmod, a.attnotnull, c.relhasrules, c.relkind, c.oid, pg_get_expr(d.adbin, d.adrelid), case t.typtype when 'd' then t.typbasetype else 0 end, t.typtypmod, 0, attidentity, c.relhassubclass from (((pg_catalog.pg_class c inner join pg_catalog.pg_namespace n on n.oid = c.relnamespace and c.oid = 1259) inner join pg_catalog.pg_attribute a on (not a.attisdropped) and a.attnum > 0 and a.attrelid = c.oid) inner join pg_catalog.pg_type t on t.oid = a.atttypid) left outer join pg_attrdef d on a.atthasdef and d.adrelid = a.attrelid and d.adnum = a.attnum order by n.nspname, c.relname, attnum
----
=> nspname	relname	attname	atttypid	typname	attnum	attlen	atttypmod	attnotnull	relhasrules	relkind	oid	pg_get_expr	case	typtypmod	?column?	attidentity	relhassubclass
pg_catalog	pg_class	oid	26	oid	1	4	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relname	19	name	2	64	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relnamespace	26	oid	3	4	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	reltype	26	oid	4	4	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	reloftype	26	oid	5	4	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relowner	26	oid	6	4	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relam	26	oid	7	4	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relfilenode	26	oid	8	4	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	reltablespace	26	oid	9	4	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relpages	23	int4	10	4	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	reltuples	700	float4	11	4	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relallvisible	23	int4	12	4	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	reltoastrelid	26	oid	13	4	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relhasindex	16	bool	14	1	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relisshared	16	bool	15	1	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relpersistence	18	char	16	1	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relkind	18	char	17	1	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relnatts	21	int2	18	2	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relchecks	21	int2	19	2	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relhasrules	16	bool	20	1	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relhastriggers	16	bool	21	1	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relhassubclass	16	bool	22	1	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relrowsecurity	16	bool	23	1	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relforcerowsecurity	16	bool	24	1	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relispopulated	16	bool	25	1	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relreplident	18	char	26	1	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relispartition	16	bool	27	1	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relrewrite	26	oid	28	4	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relfrozenxid	28	xid	29	4	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relminmxid	28	xid	30	4	-1	t	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relacl	1034	_aclitem	31	-1	-1	f	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	reloptions	1009	_text	32	-1	-1	f	f	r	1259	\N	0	-1	0		f
pg_catalog	pg_class	relpartbound	194	pg_node_tree	33	-1	-1	f	f	r	1259	\N	0	-1	0		f

-- SQLForeignKeys
select n.nspname, c.relname, a.attname, a.atttypid, t.typname, a.attnum, a.attlen, a.atttypmod, a.attnotnull, c.relhasrules, c.relkind, c.oid, pg_get_expr(d.adbin, d.adrelid), case t.typtype when 'd' then t.typbasetype else 0 end, t.typtypmod, 0, attidentity, c.relhassubclass from (((pg_catalog.pg_class c inner join pg_catalog.pg_namespace n on n.oid = c.relnamespace and c.oid = 1249) inner join pg_catalog.pg_attribute a on (not a.attisdropped) and a.attnum > 0 and a.attrelid = c.oid) inner join pg_catalog.pg_type t on t.oid = a.atttypid) left outer join pg_attrdef d on a.atthasdef and d.adrelid = a.attrelid and d.adnum = a.attnum order by n.nspname, c.relname, attnum
----
=> nspname	relname	attname	atttypid	typname	attnum	attlen	atttypmod	attnotnull	relhasrules	relkind	oid	pg_get_expr	case	typtypmod	?column?	attidentity	relhassubclass
pg_catalog	pg_attribute	attrelid	26	oid	1	4	-1	t	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	attname	19	name	2	64	-1	t	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	atttypid	26	oid	3	4	-1	t	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	attstattarget	23	int4	4	4	-1	t	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	attlen	21	int2	5	2	-1	t	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	attnum	21	int2	6	2	-1	t	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	attndims	23	int4	7	4	-1	t	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	attcacheoff	23	int4	8	4	-1	t	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	atttypmod	23	int4	9	4	-1	t	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	attbyval	16	bool	10	1	-1	t	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	attalign	18	char	11	1	-1	t	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	attstorage	18	char	12	1	-1	t	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	attcompression	18	char	13	1	-1	t	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	attnotnull	16	bool	14	1	-1	t	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	atthasdef	16	bool	15	1	-1	t	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	atthasmissing	16	bool	16	1	-1	t	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	attidentity	18	char	17	1	-1	t	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	attgenerated	18	char	18	1	-1	t	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	attisdropped	16	bool	19	1	-1	t	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	attislocal	16	bool	20	1	-1	t	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	attinhcount	23	int4	21	4	-1	t	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	attcollation	26	oid	22	4	-1	t	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	attacl	1034	_aclitem	23	-1	-1	f	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	attoptions	1009	_text	24	-1	-1	f	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	attfdwoptions	1009	_text	25	-1	-1	f	f	r	1249	\N	0	-1	0		f
pg_catalog	pg_attribute	attmissingval	2277	anyarray	26	-1	-1	f	f	r	1249	\N	0	-1	0		f

-- SQLForeignKeys
select n.nspname, c.relname, a.attname, a.atttypid, t.typname, a.attnum, a.attlen, a.atttypmod, a.attnotnull, c.relhasrules, c.relkind, c.oid, pg_get_expr(d.adbin, d.adrelid), case t.typtype when 'd' then t.typbasetype else 0 end, t.typtypmod, 0, attidentity, c.relhassubclass from (((pg_catalog.pg_class c inner join pg_catalog.pg_namespace n on n.oid = c.relnamespace and c.oid = 2606) inner join pg_catalog.pg_attribute a on (not a.attisdropped) and a.attnum > 0 and a.attrelid = c.oid) inner join pg_catalog.pg_type t on t.oid = a.atttypid) left outer join pg_attrdef d on a.atthasdef and d.adrelid = a.attrelid and d.adnum = a.attnum order by n.nspname, c.relname, attnum
----
=> nspname	relname	attname	atttypid	typname	attnum	attlen	atttypmod	attnotnull	relhasrules	relkind	oid	pg_get_expr	case	typtypmod	?column?	attidentity	relhassubclass
pg_catalog	pg_constraint	oid	26	oid	1	4	-1	t	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	conname	19	name	2	64	-1	t	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	connamespace	26	oid	3	4	-1	t	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	contype	18	char	4	1	-1	t	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	condeferrable	16	bool	5	1	-1	t	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	condeferred	16	bool	6	1	-1	t	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	convalidated	16	bool	7	1	-1	t	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	conrelid	26	oid	8	4	-1	t	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	contypid	26	oid	9	4	-1	t	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	conindid	26	oid	10	4	-1	t	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	conparentid	26	oid	11	4	-1	t	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	confrelid	26	oid	12	4	-1	t	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	confupdtype	18	char	13	1	-1	t	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	confdeltype	18	char	14	1	-1	t	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	confmatchtype	18	char	15	1	-1	t	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	conislocal	16	bool	16	1	-1	t	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	coninhcount	23	int4	17	4	-1	t	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	connoinherit	16	bool	18	1	-1	t	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	conkey	1005	_int2	19	-1	-1	f	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	confkey	1005	_int2	20	-1	-1	f	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	conpfeqop	1028	_oid	21	-1	-1	f	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	conppeqop	1028	_oid	22	-1	-1	f	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	conffeqop	1028	_oid	23	-1	-1	f	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	confdelsetcols	1005	_int2	24	-1	-1	f	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	conexclop	1028	_oid	25	-1	-1	f	f	r	2606	\N	0	-1	0		f
pg_catalog	pg_constraint	conbin	194	pg_node_tree	26	-1	-1	f	f	r	2606	\N	0	-1	0		f

-- SQLStatistics
select n.nspname, c.relname, a.attname, a.atttypid, t.typname, a.attnum, a.attlen, a.atttypmod, a.attnotnull, c.relhasrules, c.relkind, c.oid, pg_get_expr(d.adbin, d.adrelid), case t.typtype when 'd' then t.typbasetype else 0 end, t.typtypmod, 0, attidentity, c.relhassubclass from (((pg_catalog.pg_class c inner join pg_catalog.pg_namespace n on n.oid = c.relnamespace and c.relname = 'orders' and n.nspname = 'main') inner join pg_catalog.pg_attribute a on (not a.attisdropped) and a.attnum > 0 and a.attrelid = c.oid) inner join pg_catalog.pg_type t on t.oid = a.atttypid) left outer join pg_attrdef d on a.atthasdef and d.adrelid = a.attrelid and d.adnum = a.attnum order by n.nspname, c.relname, attnum
----
=> nspname	relname	attname	atttypid	typname	attnum	attlen	atttypmod	attnotnull	relhasrules	relkind	oid	pg_get_expr	case	typtypmod	?column?	attidentity	relhassubclass
main	orders	id	20	int8	1	8	-1	t	f	r	16390	\N	0	-1	0		f
main	orders	customer	23	int4	2	4	-1	f	f	r	16390	\N	0	-1	0		f
main	orders	price	1700	numeric	3	-1	786438	f	f	r	16390	0	0	-1	0		f
main	orders	note	25	text	4	-1	-1	f	f	r	16390	\N	0	-1	0		f
main	orders	placed	1114	timestamp	5	8	-1	f	f	r	16390	\N	0	-1	0		f
main	orders	day	1082	date	6	4	-1	f	f	r	16390	\N	0	-1	0		f
main	orders	paid	16	bool	7	1	-1	t	f	r	16390	false	0	-1	0		f
main	orders	tags	1009	_text	8	-1	-1	f	f	r	16390	\N	0	-1	0		f

-- SQLStatistics
select c.relname, i.indkey, i.indisunique, i.indisclustered, a.amname, c.relhasrules, n.nspname, c.oid, 0, i.indoption from pg_catalog.pg_index i, pg_catalog.pg_class c, pg_catalog.pg_class d, pg_catalog.pg_am a, pg_catalog.pg_namespace n where d.relname = 'orders' and n.nspname = 'main' and n.oid = d.relnamespace and d.oid = i.indrelid and i.indexrelid = c.oid and c.relam = a.oid order by i.indisprimary desc, i.indisunique, n.nspname, c.relname
----
=> relname	indkey	indisunique	indisclustered	amname	relhasrules	nspname	oid	?column?	indoption

-- SQLProcedures
select ''::varchar as PROCEDURE_CAT, nspname as PROCEDURE_SCHEM, proname as PROCEDURE_NAME, ''::varchar as NUM_INPUT_PARAMS, ''::varchar as NUM_OUTPUT_PARAMS, ''::varchar as NUM_RESULT_SETS, ''::varchar as REMARKS, case when prorettype = 0 then 1::int2 else 2::int2 end as PROCEDURE_TYPE from pg_catalog.pg_namespace, pg_catalog.pg_proc where pg_proc.pronamespace = pg_namespace.oid and nspname like 'main' and proname like 'abs'
----
=> procedure_cat	procedure_schem	procedure_name	num_input_params	num_output_params	num_result_sets	remarks	procedure_type

-- SQLProcedures
select n.nspname, c.relname, a.attname, a.atttypid, t.typname, a.attnum, a.attlen, a.atttypmod, a.attnotnull, c.relhasrules, c.relkind, c.oid, pg_get_expr(d.adbin, d.adrelid), case t.typtype when 'd' then t.typbasetype else 0 end, t.typtypmod, 0, attidentity, c.relhassubclass from (((pg_catalog.pg_class c inner join pg_catalog.pg_namespace n on n.oid = c.relnamespace and c.oid = 1255) inner join pg_catalog.pg_attribute a on (not a.attisdropped) and a.attnum > 0 and a.attrelid = c.oid) inner join pg_catalog.pg_type t on t.oid = a.atttypid) left outer join pg_attrdef d on a.atthasdef and d.adrelid = a.attrelid and d.adnum = a.attnum order by n.nspname, c.relname, attnum
----
=> nspname	relname	attname	atttypid	typname	attnum	attlen	atttypmod	attnotnull	relhasrules	relkind	oid	pg_get_expr	case	typtypmod	?column?	attidentity	relhassubclass
pg_catalog	pg_proc	oid	26	oid	1	4	-1	t	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	proname	19	name	2	64	-1	t	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	pronamespace	26	oid	3	4	-1	t	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	proowner	26	oid	4	4	-1	t	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	prolang	26	oid	5	4	-1	t	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	procost	700	float4	6	4	-1	t	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	prorows	700	float4	7	4	-1	t	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	provariadic	26	oid	8	4	-1	t	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	prosupport	24	regproc	9	4	-1	t	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	prokind	18	char	10	1	-1	t	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	prosecdef	16	bool	11	1	-1	t	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	proleakproof	16	bool	12	1	-1	t	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	proisstrict	16	bool	13	1	-1	t	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	proretset	16	bool	14	1	-1	t	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	provolatile	18	char	15	1	-1	t	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	proparallel	18	char	16	1	-1	t	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	pronargs	21	int2	17	2	-1	t	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	pronargdefaults	21	int2	18	2	-1	t	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	prorettype	26	oid	19	4	-1	t	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	proargtypes	30	oidvector	20	-1	-1	t	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	proallargtypes	1028	_oid	21	-1	-1	f	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	proargmodes	1002	_char	22	-1	-1	f	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	proargnames	1009	_text	23	-1	-1	f	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	proargdefaults	194	pg_node_tree	24	-1	-1	f	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	protrftypes	1028	_oid	25	-1	-1	f	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	prosrc	25	text	26	-1	-1	t	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	probin	25	text	27	-1	-1	f	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	prosqlbody	194	pg_node_tree	28	-1	-1	f	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	proconfig	1009	_text	29	-1	-1	f	f	r	1255	\N	0	-1	0		f
pg_catalog	pg_proc	proacl	1034	_aclitem	30	-1	-1	f	f	r	1255	\N	0	-1	0		f

-- SQLProcedureColumns
select proname, proretset, prorettype, pronargs, proargtypes, nspname, p.oid, atttypid, attname, proargnames, proargmodes, proallargtypes from ((pg_catalog.pg_namespace n inner join pg_catalog.pg_proc p on p.pronamespace = n.oid) inner join pg_type t on t.oid = p.prorettype) left outer join pg_attribute a on a.attrelid = t.typrelid  and attnum > 0 and not attisdropped where has_function_privilege(p.oid, 'EXECUTE') and proname like 'abs' order by nspname, proname, p.oid, attnum
----
=> proname	proretset	prorettype	pronargs	proargtypes	nspname	oid	atttypid	attname	proargnames	proargmodes	proallargtypes
abs	f	700	1	700	pg_catalog	1394	\N	\N	\N	\N	\N
abs	f	701	1	701	pg_catalog	1395	\N	\N	\N	\N	\N
abs	f	20	1	20	pg_catalog	1396	\N	\N	\N	\N	\N
abs	f	23	1	23	pg_catalog	1397	\N	\N	\N	\N	\N
abs	f	21	1	21	pg_catalog	1398	\N	\N	\N	\N	\N
abs	f	1700	1	1700	pg_catalog	1705	\N	\N	\N	\N	\N

-- SQLSpecialColumns
select c.relhasrules, c.relkind, 0 as relhasoids from pg_catalog.pg_namespace u, pg_catalog.pg_class c where u.oid = c.relnamespace and c.relname = 'orders' and u.nspname = 'main'
----
=> relhasrules	relkind	relhasoids
f	r	0

-- select
select n.nspname, c.relname, a.attname, a.atttypid, t.typname, a.attnum, a.attlen, a.atttypmod, a.attnotnull, c.relhasrules, c.relkind, c.oid, pg_get_expr(d.adbin, d.adrelid), case t.typtype when 'd' then t.typbasetype else 0 end, t.typtypmod, 0, attidentity, c.relhassubclass from (((pg_catalog.pg_class c inner join pg_catalog.pg_namespace n on n.oid = c.relnamespace and c.oid = 16390) inner join pg_catalog.pg_attribute a on (not a.attisdropped) and a.attnum > 0 and a.attrelid = c.oid) inner join pg_catalog.pg_type t on t.oid = a.atttypid) left outer join pg_attrdef d on a.atthasdef and d.adrelid = a.attrelid and d.adnum = a.attnum order by n.nspname, c.relname, attnum
----
=> nspname	relname	attname	atttypid	typname	attnum	attlen	atttypmod	attnotnull	relhasrules	relkind	oid	pg_get_expr	case	typtypmod	?column?	attidentity	relhassubclass
main	orders	id	20	int8	1	8	-1	t	f	r	16390	\N	0	-1	0		f
main	orders	customer	23	int4	2	4	-1	f	f	r	16390	\N	0	-1	0		f
main	orders	price	1700	numeric	3	-1	786438	f	f	r	16390	0	0	-1	0		f
main	orders	note	25	text	4	-1	-1	f	f	r	16390	\N	0	-1	0		f
main	orders	placed	1114	timestamp	5	8	-1	f	f	r	16390	\N	0	-1	0		f
main	orders	day	1082	date	6	4	-1	f	f	r	16390	\N	0	-1	0		f
main	orders	paid	16	bool	7	1	-1	t	f	r	16390	false	0	-1	0		f
main	orders	tags	1009	_text	8	-1	-1	f	f	r	16390	\N	0	-1	0		f
