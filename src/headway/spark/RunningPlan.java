package headway;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.ScalarSubquery;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.BroadcastQueryStageExec;
import org.apache.spark.sql.execution.adaptive.LogicalQueryStage;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.adaptive.ShuffleQueryStageExec;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec;
import org.apache.spark.sql.execution.joins.HashedRelation;
import org.apache.spark.sql.execution.joins.LongHashedRelation;
import org.apache.spark.sql.execution.joins.UnsafeHashedRelation;
import org.apache.spark.sql.types.StructType;

/**
 * What a running query has behind it: its logical plan as adaptive execution sees it now, in which
 * finished parts stand as leaves, and the physical node through which the rows of each are read.
 *
 * A finished stage stands for a node of the logical plan. Once Spark has planned again, that node is
 * a LogicalQueryStage, which knows the physical node. Before, the stage links to the node, and so do
 * the physical nodes above that belong to it: over a shuffle of partial aggregates there is the
 * final aggregate, and the topmost one is what has the rows of the logical node.
 */
public final class RunningPlan {

    private static final int MOST_TRIALS = 10;

    /** Whether hash tables have all rows that they were made from. */
    private static final java.util.Map COMPLETE =
        java.util.Collections.synchronizedMap(new java.util.WeakHashMap());

    /** Numbers of what the driver reads as a task would; those of tasks begin with 0. */
    private static final java.util.concurrent.atomic.AtomicLong HERE =
        new java.util.concurrent.atomic.AtomicLong(-1000000L);

    private final java.util.IdentityHashMap links = new java.util.IdentityHashMap();
    /** By what a stage computes, the stage; null where Spark has not come to it. */
    private final java.util.IdentityHashMap computed = new java.util.IdentityHashMap();
    private final java.util.IdentityHashMap held = new java.util.IdentityHashMap();
    private final java.util.Map subqueries = new java.util.HashMap();
    private final java.util.List planned = new java.util.ArrayList();
    private final java.util.List unplanned = new java.util.ArrayList();
    private final java.util.List states = new java.util.ArrayList();
    private final java.util.List origins = new java.util.ArrayList();
    private final java.util.List unfinished = new java.util.ArrayList();
    private java.util.List passedOver = java.util.Collections.EMPTY_LIST;
    private int finished = 0;
    private int total = 0;

    /** For py4j, which calls methods of objects with less ado than those of classes. */
    public RunningPlan() {
    }

    /**
     * The text of the plan, as TreeText writes it, and its nodes; how many stages are finished, how many there are,
     * and which have tasks at work, as numbers with spaces between, a bar, and which of the others are
     * not finished; then, of every state that the plan
     * reads, a text, its physical node, and the logical node that it stands for. The text has its
     * number, the operator it stands for, its rows, its bytes, pairs of the numbers and the milliseconds
     * of the exchanges behind it (-1 for unknown), whether it is a broadcast table, whether it has all rows of that logical node, whether reading it needs the result of a subquery, the
     * places of that node's columns in it, and its schema.
     *
     * States with the same rows as one of `passedOver` give way to the older ones that they were
     * made from. Where Spark plans again meanwhile, its links are of two plans: it is read again.
     */
    public static Object[] of(Object execution, java.util.List passedOver) {
        QueryExecution query = (QueryExecution) execution;
        RunningPlan plan = null;
        LogicalPlan logical = null;
        for (int trial = 0; trial < MOST_TRIALS; trial++) {
            SparkPlan before = newest(query.executedPlan());
            plan = new RunningPlan();
            plan.passedOver = passedOver;
            logical = plan.current(query.executedPlan());
            if (logical == null) {
                logical = query.optimizedPlan();
            }
            plan.findHeld(logical);
            plan.findAlike(logical);
            plan.findAlikeSubqueries();
            if (newest(query.executedPlan()) == before) {
                break;
            }
        }
        java.util.List used = new java.util.ArrayList();
        java.util.List nodes = new java.util.ArrayList();
        String text = TreeText.running(logical, plan.held, plan.subqueries, used, nodes);
        Object[] found = new Object[3 + 3 * used.size()];
        java.util.Map times = used.isEmpty() ? null : stageTimes(query.sparkSession().sparkContext());
        found[0] = text;
        found[1] = nodes;
        found[2] = plan.counted(query);
        for (int i = 0; i < used.size(); i++) {
            int number = ((Integer) used.get(i)).intValue();
            SparkPlan state = (SparkPlan) plan.states.get(number);
            LogicalPlan origin = (LogicalPlan) plan.origins.get(number);
            found[3 + 3 * i] = number + " " + operator(origin) + " "
                + described(state, (int[]) plan.held.get(origin), times);
            found[4 + 3 * i] = state;
            found[5 + 3 * i] = origin;
        }
        return found;
    }

    /** The stages alone, as `of` tells them: this is asked again and again of a query that is waited for. */
    public static String stages(Object execution) {
        QueryExecution query = (QueryExecution) execution;
        RunningPlan plan = new RunningPlan();
        plan.current(query.executedPlan());
        return plan.counted(query);
    }

    /** What a state stands for: past the projections over it, which cost nothing. */
    private static String operator(LogicalPlan origin) {
        LogicalPlan node = origin;
        while (node instanceof LogicalQueryStage
            || node instanceof org.apache.spark.sql.catalyst.plans.logical.Project) {
            node = node instanceof LogicalQueryStage
                ? unstaged(node) : (LogicalPlan) ((TreeNode) node).children().apply(0);
        }
        return node.getClass().getSimpleName();
    }

    private String counted(QueryExecution query) {
        return finished + " " + total + underWay(unfinished, query.sparkSession().sparkContext());
    }

    private static SparkPlan newest(SparkPlan plan) {
        return plan instanceof AdaptiveSparkPlanExec
            ? ((AdaptiveSparkPlanExec) plan).executedPlan() : plan;
    }

    /** Whether two finished parts have the same rows, however each of them is read. */
    public static boolean same(Object first, Object second) {
        return bare((SparkPlan) first).sameResult(bare((SparkPlan) second));
    }

    /** Without the ways in which the parts of a shuffle are read, several at a time or halves, and
     * the marks of what is compiled together. */
    private static SparkPlan bare(SparkPlan node) {
        if (node instanceof org.apache.spark.sql.execution.adaptive.AQEShuffleReadExec
            || node instanceof org.apache.spark.sql.execution.WholeStageCodegenExec
            || node instanceof org.apache.spark.sql.execution.InputAdapter) {
            return bare((SparkPlan) ((TreeNode) node).children().apply(0));
        }
        scala.collection.Seq children = ((TreeNode) node).children();
        if (children.length() == 0) {
            return node;
        }
        java.util.List made = new java.util.ArrayList();
        boolean changed = false;
        for (int i = 0; i < children.length(); i++) {
            SparkPlan child = bare((SparkPlan) children.apply(i));
            changed = changed || child != children.apply(i);
            made.add(child);
        }
        return changed ? (SparkPlan) ((TreeNode) node).withNewChildren(
            scala.jdk.javaapi.CollectionConverters.asScala(made).toSeq()) : node;
    }

    /** The text of a logical plan as it was before any of its stages was finished, and its nodes. */
    public static Object[] origin(Object logical) {
        java.util.List nodes = new java.util.ArrayList();
        String text = TreeText.running((LogicalPlan) logical, java.util.Collections.EMPTY_MAP,
            java.util.Collections.EMPTY_MAP, new java.util.ArrayList(), nodes);
        return new Object[] {text, nodes};
    }

    /** A finished part as a frame: columns c0, c1, ... in the order of the physical node. */
    public static Object frame(Object session, Object physical) {
        SparkPlan plan = (SparkPlan) physical;
        org.apache.spark.sql.classic.SparkSession spark =
            (org.apache.spark.sql.classic.SparkSession) session;
        if (plan instanceof InMemoryTableScanExec) {  // made here, and by nobody's session
            org.apache.spark.sql.classic.Dataset table = org.apache.spark.sql.classic.Dataset.ofRows(
                spark, ((InMemoryTableScanExec) plan).relation());
            return plan.output().isEmpty() ? table.selectExpr(new String[] {"true AS c0"}) : table;
        }
        if (plan.output().isEmpty()) {
            org.apache.spark.sql.classic.Dataset rows = plan instanceof BroadcastQueryStageExec
                ? spark.range(eachRow(relation((BroadcastQueryStageExec) plan), null)).toDF()
                : spark.internalCreateDataFrame(plan.execute(), new StructType(), false);
            return rows.selectExpr(new String[] {"true AS c0"});
        }
        return plan instanceof BroadcastQueryStageExec
            ? broadcast((BroadcastQueryStageExec) plan, spark)
            : spark.internalCreateDataFrame(plan.execute(), TreeText.schema(plan.output()), false);
    }

    /** The rows of a finished part, from the driver's copy of a broadcast table or read by the driver
     * itself, and without a task: a file of Arrow streams, one after the other; of one without rows,
     * an empty one. */
    public static String file(Object physical) throws java.io.IOException {
        SparkPlan plan = (SparkPlan) physical;
        java.nio.file.Path file = java.nio.file.Files.createTempFile(
            "headway-state-", ".arrow", new java.nio.file.attribute.FileAttribute[0]);
        boolean whole = false;
        try {
            java.io.OutputStream written = new java.io.FileOutputStream(file.toFile());
            try {
                if (plan instanceof BroadcastQueryStageExec) {
                    java.util.List rows = new java.util.ArrayList();
                    eachRow(relation((BroadcastQueryStageExec) plan), rows);
                    write(scala.jdk.javaapi.CollectionConverters.asScala(rows.iterator()), plan, written);
                } else {
                    writeParts(plan, written);
                }
            } finally {
                written.close();
            }
            whole = true;
        } finally {
            if (!whole) {
                java.nio.file.Files.deleteIfExists(file);
            }
        }
        return file.toString();
    }

    private static void write(
        scala.collection.Iterator rows, SparkPlan plan, java.io.OutputStream written)
        throws java.io.IOException {
        if (!rows.hasNext()) {
            return;
        }
        if (plan.output().isEmpty()) {
            int count = 0;
            for (; rows.hasNext(); count++) {
                rows.next();
            }
            rows = scala.jdk.javaapi.CollectionConverters.asScala(java.util.Collections.nCopies(count,
                new org.apache.spark.sql.catalyst.expressions.GenericInternalRow(
                    new Object[] {Boolean.TRUE})).iterator());
        }
        scala.collection.Iterator streams = TreeText.arrow(rows, TreeText.schema(plan.output()));
        while (streams.hasNext()) {
            written.write((byte[]) streams.next());
        }
    }

    /** One part after the other, as a task would read it, in this thread. */
    private static void writeParts(SparkPlan plan, java.io.OutputStream written)
        throws java.io.IOException {
        RDD rows = plan.execute();
        Object env = rows.sparkContext().env();
        org.apache.spark.memory.MemoryManager manager = (org.apache.spark.memory.MemoryManager)
            part(env, "memoryManager", org.apache.spark.memory.MemoryManager.class);
        org.apache.spark.storage.BlockManager blocks = (org.apache.spark.storage.BlockManager)
            part(env, "blockManager", org.apache.spark.storage.BlockManager.class);
        org.apache.spark.metrics.MetricsSystem metrics = (org.apache.spark.metrics.MetricsSystem)
            part(env, "metricsSystem", org.apache.spark.metrics.MetricsSystem.class);
        java.util.Properties settings = new java.util.Properties();
        scala.collection.Iterator known = plan.conf().getAllConfs().iterator();
        while (known.hasNext()) {
            scala.Tuple2 each = (scala.Tuple2) known.next();
            settings.setProperty((String) each._1(), (String) each._2());
        }
        org.apache.spark.Partition[] parts = rows.partitions();
        for (int i = 0; i < parts.length; i++) {
            long task = HERE.decrementAndGet();
            org.apache.spark.memory.TaskMemoryManager memory =
                new org.apache.spark.memory.TaskMemoryManager(manager, task);
            org.apache.spark.TaskContextImpl context = new org.apache.spark.TaskContextImpl(
                -1, 0, i, task, 0, parts.length, memory, settings, metrics,
                org.apache.spark.executor.TaskMetrics.empty(), scala.math.BigDecimal$.MODULE$.apply(1),
                (scala.collection.immutable.Map) scala.collection.immutable.Map$.MODULE$.empty());
            blocks.registerTask(task);
            org.apache.spark.TaskContext$.MODULE$.setTaskContext(context);
            try {
                write(rows.iterator(parts[i], context), plan, written);
            } finally {
                try {
                    context.markTaskCompleted(scala.Option.empty());
                } finally {
                    org.apache.spark.TaskContext$.MODULE$.unset();
                    blocks.releaseAllLocksForTask(task);
                    memory.cleanUpAllAllocatedMemory();
                }
            }
        }
    }

    /** Of Spark's environment: a class with methods of which not all are complete without Spark
     * Connect, so that nobody can ask for a list of them. */
    private static Object part(Object env, String name, Class type) throws java.io.IOException {
        try {
            return java.lang.invoke.MethodHandles.publicLookup()
                .findVirtual(env.getClass(), name, java.lang.invoke.MethodType.methodType(type))
                .invokeWithArguments(new Object[] {env});
        } catch (Throwable error) {
            throw new java.io.IOException(error);
        }
    }

    /** Runs the plan of a frame for its own sake; how many rows it has. */
    public static long count(Object dataset) {
        final QueryExecution query =
            ((org.apache.spark.sql.classic.Dataset) dataset).queryExecution();
        Object rows = org.apache.spark.sql.execution.SQLExecution$.MODULE$.withNewExecutionId(
            query, scala.Option.apply("count"), new scala.runtime.AbstractFunction0() {
                public Object apply() {
                    return Long.valueOf(query.toRdd().count());
                }
            });
        return ((Long) rows).longValue();
    }

    /**
     * The same rows for a plan that is to know how many they are: Spark cannot tell what a Python
     * function will read. `name` is that of the state; a running plan says it of this leaf.
     */
    public static Object sized(
        Object dataset, String name, long bytes, long rows, boolean inOneTask) {
        org.apache.spark.sql.classic.Dataset frame = (org.apache.spark.sql.classic.Dataset) dataset;
        RDD read = frame.queryExecution().toRdd();
        read.setName(TreeText.STATE + name);
        org.apache.spark.sql.catalyst.plans.logical.Statistics size =
            new org.apache.spark.sql.catalyst.plans.logical.Statistics(
                scala.math.BigInt.apply(bytes),
                scala.Option.apply(scala.math.BigInt.apply(rows)),
                org.apache.spark.sql.catalyst.plans.logical.Statistics.apply$default$3(),
                false);
        org.apache.spark.sql.classic.SparkSession session = frame.queryExecution().sparkSession();
        org.apache.spark.sql.catalyst.plans.physical.Partitioning partitioning =
            inOneTask && read.getNumPartitions() == 1
                ? (org.apache.spark.sql.catalyst.plans.physical.Partitioning)
                    org.apache.spark.sql.catalyst.plans.physical.SinglePartition$.MODULE$
                : org.apache.spark.sql.execution.LogicalRDD.apply$default$3();
        LogicalPlan leaf = new org.apache.spark.sql.execution.LogicalRDD(
            frame.queryExecution().analyzed().output(),
            read,
            partitioning,
            org.apache.spark.sql.execution.LogicalRDD.apply$default$4(),
            false,
            scala.Option.empty(),
            session,
            scala.Option.apply(size),
            scala.Option.empty(),
            false);
        return org.apache.spark.sql.classic.Dataset.ofRows(session, leaf);
    }

    private static String described(SparkPlan state, int[] numbered, java.util.Map times) {
        QueryStageExec stage = stageBelow(state);
        String sizes = "-1 -1";
        if (state instanceof InMemoryTableScanExec) {
            org.apache.spark.sql.catalyst.plans.logical.Statistics cached =
                ((InMemoryTableScanExec) state).relation().stats();
            scala.Option rows = cached.rowCount();
            sizes = (rows.isDefined() ? rows.get().toString() : "-1") + " " + cached.sizeInBytes();
        } else if (stage != null) {
            boolean parts = state != stage && isPartial(stage);
            scala.Option rows = parts
                ? scala.Option.empty() : stage.getRuntimeStatistics().rowCount();
            String bytes = stage.getRuntimeStatistics().sizeInBytes().toString();
            if (rows.isDefined() && state instanceof BroadcastQueryStageExec) {
                // Spark tells the memory of the hash table, which is never below 64 MiB.
                java.math.BigInteger wide =
                    java.math.BigInteger.valueOf(TreeText.schema(state.output()).defaultSize());
                bytes = new java.math.BigInteger(rows.get().toString()).multiply(wide).toString();
            }
            sizes = (rows.isDefined() ? rows.get().toString() : "-1") + " " + bytes;
        }
        boolean whole = isWhole(state);
        StringBuilder places = new StringBuilder("[");
        for (int i = 1; i < numbered.length; i++) {
            places.append(i == 1 ? "" : ",").append(numbered[i]);
        }
        boolean waits = hasSubqueries(state);
        java.util.Map steps = new java.util.TreeMap();
        boolean known = stepsBehind(state, times, steps);
        boolean copied = state instanceof BroadcastQueryStageExec;
        return sizes + " " + (known ? pairs(steps) : "-1") + " " + copied + " " + whole + " " + waits + " " + places + "] "
            + TreeText.schema(state.output()).json();
    }

    /** The numbers of unfinished stages: of those that have begun, and then of the others. Adaptive
     * execution submits all it can, whether or not there are cores for their tasks. */
    private static String underWay(java.util.List stages, org.apache.spark.SparkContext context) {
        if (stages.isEmpty()) {
            return " |";
        }
        java.util.Set rows = new java.util.HashSet();
        java.util.Set begun = new java.util.HashSet();
        scala.collection.Seq active =
            stagesThat(context, org.apache.spark.status.api.v1.StageStatus.ACTIVE);
        for (int i = 0; i < active.length(); i++) {
            org.apache.spark.status.api.v1.StageData stage =
                (org.apache.spark.status.api.v1.StageData) active.apply(i);
            if (hasTasks(stage, context)) {
                begun.add(Integer.valueOf(stage.stageId()));
                for (int j = 0; j < stage.rddIds().length(); j++) {
                    rows.add(stage.rddIds().apply(j));
                }
            }
        }
        java.util.Set tags = new java.util.HashSet();
        scala.collection.Seq jobs = context.statusStore().jobsList(
            java.util.Collections.singletonList(org.apache.spark.JobExecutionStatus.RUNNING));
        for (int i = 0; i < jobs.length(); i++) {
            org.apache.spark.status.api.v1.JobData job =
                (org.apache.spark.status.api.v1.JobData) jobs.apply(i);
            for (int j = 0; j < job.stageIds().length(); j++) {
                for (int k = 0; begun.contains(job.stageIds().apply(j)) && k < job.jobTags().length(); k++) {
                    tags.add(job.jobTags().apply(k));
                }
            }
        }
        StringBuilder numbers = new StringBuilder();
        StringBuilder others = new StringBuilder();
        for (int i = 0; i < stages.size(); i++) {
            SparkPlan exchange = unreused(((QueryStageExec) stages.get(i)).plan());
            boolean running = hasBegun(exchange, rows, tags) || isSampled(exchange);
            (running ? numbers : others).append(' ').append(exchange.id());
        }
        return numbers + " |" + others;
    }

    /** Whether it has tasks at work, or done. The scheduler knows; what Spark tells of a stage follows
     * when one of its tasks ends, which may be after minutes. Its queue has only stages with tasks that
     * have not begun. */
    private static boolean hasTasks(
        org.apache.spark.status.api.v1.StageData stage, org.apache.spark.SparkContext context) {
        scala.Option found = ((org.apache.spark.scheduler.TaskSchedulerImpl) context.taskScheduler())
            .taskSetManagerForAttempt(stage.stageId(), stage.attemptId());
        if (!found.isDefined()) {
            return false;
        }
        org.apache.spark.scheduler.TaskSetManager tasks =
            (org.apache.spark.scheduler.TaskSetManager) found.get();
        return tasks.runningTasks() + tasks.tasksSuccessful() > 0;
    }

    private static boolean hasBegun(SparkPlan exchange, java.util.Set rows, java.util.Set tags) {
        if (exchange instanceof org.apache.spark.sql.execution.exchange.ShuffleExchangeExec) {
            // Until Spark has made its dependency, asking for it would make it, sampling included.
            return metric(exchange, "numPartitions") > 0 && rows.contains(Integer.valueOf(
                ((org.apache.spark.sql.execution.exchange.ShuffleExchangeExec) exchange)
                    .shuffleDependency().rdd().id()));
        }
        if (exchange instanceof org.apache.spark.sql.execution.exchange.BroadcastExchangeExec) {
            return metric(exchange, "collectTime") > 0 || tags.contains(
                ((org.apache.spark.sql.execution.exchange.BroadcastExchangeExec) exchange).jobTag());
        }
        return true;
    }

    /** Rows that are put in order are read once before, to find where to cut them. */
    private static boolean isSampled(SparkPlan exchange) {
        return exchange instanceof org.apache.spark.sql.execution.exchange.ShuffleExchangeExec
            && metric(exchange, "numPartitions") == 0
            && exchange.outputPartitioning()
                instanceof org.apache.spark.sql.catalyst.plans.physical.RangePartitioning;
    }

    private static scala.collection.Seq stagesThat(
        org.apache.spark.SparkContext context, org.apache.spark.status.api.v1.StageStatus are) {
        return context.statusStore().stageList(java.util.Collections.singletonList(are),
            false, false, new double[0], java.util.Collections.EMPTY_LIST);
    }

    /** The milliseconds of every stage that has ended, had it had all cores, by the numbers of its RDDs. */
    private static java.util.Map stageTimes(org.apache.spark.SparkContext context) {
        java.util.Map times = new java.util.HashMap();
        int cores = Math.max(1, context.defaultParallelism());
        scala.collection.Seq stages =
            stagesThat(context, org.apache.spark.status.api.v1.StageStatus.COMPLETE);
        for (int i = 0; i < stages.length(); i++) {
            org.apache.spark.status.api.v1.StageData stage =
                (org.apache.spark.status.api.v1.StageData) stages.apply(i);
            scala.collection.Seq numbers = stage.rddIds();
            for (int j = 0; j < numbers.length(); j++) {
                Object known = times.get(numbers.apply(j));
                long before = known == null ? 0 : ((Long) known).longValue();
                times.put(numbers.apply(j), Long.valueOf(before + stage.executorRunTime() / cores));
            }
        }
        return times;
    }

    /** Adds those of all exchanges that a state was made by; false where Spark has forgotten one of them. */
    private static boolean stepsBehind(SparkPlan node, java.util.Map times, java.util.Map steps) {
        if (node instanceof QueryStageExec && isExchange((QueryStageExec) node)) {
            SparkPlan exchange = unreused(((QueryStageExec) node).plan());
            long millis = millisOf(exchange, times);
            if (millis < 0 || steps.put(Integer.valueOf(exchange.id()), Long.valueOf(millis)) != null) {
                return millis >= 0;
            }
        }
        scala.collection.Seq children = inputs(node);
        for (int i = 0; i < children.length(); i++) {
            if (!stepsBehind((SparkPlan) children.apply(i), times, steps)) {
                return false;
            }
        }
        return true;
    }

    private static String pairs(java.util.Map numbers) {
        StringBuilder text = new StringBuilder("[");
        java.util.Iterator entries = numbers.entrySet().iterator();
        while (entries.hasNext()) {
            java.util.Map.Entry entry = (java.util.Map.Entry) entries.next();
            text.append(text.length() > 1 ? "," : "");
            text.append('[').append(entry.getKey()).append(',').append(entry.getValue()).append(']');
        }
        return text.append(']').toString();
    }

    private static long millisOf(SparkPlan exchange, java.util.Map times) {
        if (exchange instanceof org.apache.spark.sql.execution.exchange.ShuffleExchangeExec) {
            RDD rows = ((org.apache.spark.sql.execution.exchange.ShuffleExchangeExec) exchange)
                .shuffleDependency().rdd();
            Object known = times.get(Integer.valueOf(rows.id()));
            return known == null ? -1 : ((Long) known).longValue();
        }
        if (exchange instanceof org.apache.spark.sql.execution.exchange.BroadcastExchangeExec) {
            return metric(exchange, "collectTime") + metric(exchange, "buildTime");
        }
        return -1;
    }

    private static long metric(SparkPlan node, String name) {
        scala.Option found = node.metrics().get(name);
        return found.isDefined()
            ? ((Number) ((org.apache.spark.util.AccumulatorV2) found.get()).value()).longValue() : 0;
    }

    /** Whether it has all rows of what it stands for: hash tables have none whose key is null. Keys
     * that Spark takes for nullable seldom are: rows are counted then, once for every table. */
    private static boolean isWhole(SparkPlan state) {
        if (!(state instanceof BroadcastQueryStageExec)
            || relation((BroadcastQueryStageExec) state) instanceof InternalRow[]) {
            return true;
        }
        SparkPlan exchange = unreused(((QueryStageExec) state).plan());
        Object mode = exchange instanceof org.apache.spark.sql.execution.exchange.BroadcastExchangeExec
            ? ((org.apache.spark.sql.execution.exchange.BroadcastExchangeExec) exchange).mode() : null;
        if (!(mode instanceof org.apache.spark.sql.execution.joins.HashedRelationBroadcastMode)) {
            return false;
        }
        scala.collection.Seq keys =
            ((org.apache.spark.sql.execution.joins.HashedRelationBroadcastMode) mode).key();
        for (int i = 0; i < keys.length(); i++) {
            if (((Expression) keys.apply(i)).nullable()) {
                return hasAllRows((BroadcastQueryStageExec) state);
            }
        }
        return true;
    }

    private static boolean hasAllRows(BroadcastQueryStageExec stage) {
        Object relation = relation(stage);
        Object known = COMPLETE.get(relation);
        if (known == null) {
            scala.Option made = stage.getRuntimeStatistics().rowCount();
            known = Boolean.valueOf(made.isDefined()
                && Long.parseLong(made.get().toString()) == eachRow(relation, null));
            COMPLETE.put(relation, known);
        }
        return ((Boolean) known).booleanValue();
    }

    private static SparkPlan unreused(SparkPlan exchange) {
        return exchange instanceof org.apache.spark.sql.execution.exchange.ReusedExchangeExec
            ? (SparkPlan) ((org.apache.spark.sql.execution.exchange.ReusedExchangeExec) exchange).child()
            : exchange;
    }

    /** Whether a node that is run to read the rows of a stage needs the result of a subquery. */
    private static boolean hasSubqueries(SparkPlan node) {
        if (node instanceof QueryStageExec) {
            return false;
        }
        scala.collection.Seq expressions = node.expressions();
        for (int i = 0; i < expressions.length(); i++) {
            if (isOrHasSubquery((Expression) expressions.apply(i))) {
                return true;
            }
        }
        scala.collection.Seq children = inputs(node);
        for (int i = 0; i < children.length(); i++) {
            if (hasSubqueries((SparkPlan) children.apply(i))) {
                return true;
            }
        }
        return false;
    }

    private static boolean isOrHasSubquery(Expression expression) {
        if (expression instanceof org.apache.spark.sql.execution.ExecSubqueryExpression) {
            return true;
        }
        scala.collection.Seq children = ((TreeNode) expression).children();
        for (int i = 0; i < children.length(); i++) {
            if (isOrHasSubquery((Expression) children.apply(i))) {
                return true;
            }
        }
        return false;
    }

    /**
     * The rows of a broadcast table, from the driver's copy of it. Single rows would take Spark long
     * to hand out, and longer to plan with.
     */
    private static Object broadcast(
        BroadcastQueryStageExec stage, org.apache.spark.sql.classic.SparkSession spark) {
        org.apache.spark.sql.classic.SparkSession beside = spark.cloneSession();
        beside.conf().set("spark.sql.execution.arrow.localRelationThreshold", "0");
        java.util.List rows = new java.util.ArrayList();
        eachRow(relation(stage), rows);
        StructType schema = TreeText.schema(stage.output());
        String zone = beside.sessionState().conf().sessionLocalTimeZone();
        long most = Math.max(10000L, rows.size() / spark.sparkContext().defaultParallelism() + 1);
        scala.collection.Iterator batches =
            org.apache.spark.sql.execution.arrow.ArrowConverters$.MODULE$.toBatchIterator(
                scala.jdk.javaapi.CollectionConverters.asScala(rows.iterator()), schema, most,
                zone, true, false, null);
        return org.apache.spark.sql.execution.arrow.ArrowConverters$.MODULE$.toDataFrame(
            batches, schema, beside, zone, true, false);
    }

    /** How many rows a broadcast table has; copies of them are put into `copies`, if it is given. */
    private static long eachRow(Object relation, java.util.List copies) {
        long count = 0;
        if (relation instanceof InternalRow[]) {
            InternalRow[] found = (InternalRow[]) relation;
            for (int i = 0; i < found.length; i++) {
                count += copied(found[i], copies);
            }
        } else if (relation instanceof UnsafeHashedRelation) {
            scala.collection.Iterator values =
                ((HashedRelation) relation).asReadOnlyCopy().valuesWithKeyIndex();
            while (values.hasNext()) {
                count += copied(((org.apache.spark.sql.execution.joins.ValueRowWithKeyIndex) values.next())
                    .getValue(), copies);
            }
        } else if (relation instanceof LongHashedRelation) {
            HashedRelation hashed = ((HashedRelation) relation).asReadOnlyCopy();
            scala.collection.Iterator keys = hashed.keys();
            while (keys.hasNext()) {
                scala.collection.Iterator values = hashed.get(((InternalRow) keys.next()).getLong(0));
                while (values != null && values.hasNext()) {
                    count += copied((InternalRow) values.next(), copies);
                }
            }
        }
        return count;
    }

    private static int copied(InternalRow row, java.util.List copies) {
        if (copies != null) {
            copies.add(row.copy());
        }
        return 1;
    }

    private static Object relation(BroadcastQueryStageExec stage) {
        Object found = ((scala.Option) stage.resultOption().get()).get();
        return ((org.apache.spark.broadcast.Broadcast) found).value();
    }

    /** The logical plan that stands behind a physical one; notes its stages. */
    private LogicalPlan current(SparkPlan plan) {
        SparkPlan physical = plan;
        if (plan instanceof AdaptiveSparkPlanExec) {
            physical = ((AdaptiveSparkPlanExec) plan).executedPlan();
        }
        visit(physical, new java.util.ArrayList());
        SparkPlan node = physical;
        while (node != null) {
            LogicalPlan link = link(node);
            if (link != null) {
                return link;
            }
            node = below(node);
        }
        return null;
    }

    /** Finds the stages, those that finished ones were made from as well. `above` are the nodes from
     * the root to this one. */
    private void visit(SparkPlan node, java.util.List above) {
        visitSubqueries(node);
        if (node instanceof QueryStageExec && isExchange((QueryStageExec) node)) {
            QueryStageExec stage = (QueryStageExec) node;
            count(unreused(stage.plan()), stage);
            if (stage.isMaterialized()) {
                note(stage, above);
            }
        } else if (node instanceof org.apache.spark.sql.execution.adaptive.TableCacheQueryStageExec
            && !((QueryStageExec) node).isMaterialized()) {
            SparkPlan table = ((QueryStageExec) node).plan();  // which this query, or another, caches
            count(table instanceof InMemoryTableScanExec
                ? (Object) ((InMemoryTableScanExec) table).relation().cacheBuilder() : table,
                (QueryStageExec) node);
        } else if (node instanceof org.apache.spark.sql.execution.exchange.Exchange) {
            count(node, null);
        }
        java.util.List path = new java.util.ArrayList(above);
        path.add(node);
        scala.collection.Seq children = inputs(node);
        for (int i = 0; i < children.length(); i++) {
            visit((SparkPlan) children.apply(i), path);
        }
    }

    /** One that is read in several places, in a subquery as well, is one, whichever is seen first. */
    private void count(Object computes, QueryStageExec stage) {
        if (!computed.containsKey(computes)) {
            total++;
        }
        if (computed.get(computes) != null || (stage == null && computed.containsKey(computes))) {
            return;
        }
        computed.put(computes, stage);
        if (stage != null && stage.isMaterialized()) {
            finished++;
        } else if (stage != null) {
            unfinished.add(stage);
        }
    }

    private void note(QueryStageExec stage, java.util.List above) {
        LogicalPlan logical = link(stage);
        if (logical == null || links.containsKey(logical)) {
            return;
        }
        SparkPlan physical = stage;
        for (int i = 0; i < above.size(); i++) {
            SparkPlan node = (SparkPlan) above.get(i);
            boolean moves = node instanceof QueryStageExec
                || node instanceof org.apache.spark.sql.execution.exchange.Exchange;
            if (!moves && link(node) == logical) {
                physical = node;
                break;
            }
        }
        if (physical != stage || !isPartial(stage)) {
            links.put(logical, physical);
        }
    }

    /** Whether its rows are parts of groups, which only a final aggregate above it may read. */
    private static boolean isPartial(QueryStageExec stage) {
        SparkPlan node = below(unreused(stage.plan()));
        while (node instanceof org.apache.spark.sql.execution.WholeStageCodegenExec
            || node instanceof org.apache.spark.sql.execution.InputAdapter) {
            node = below(node);
        }
        return node instanceof org.apache.spark.sql.execution.aggregate.BaseAggregateExec
            && ((org.apache.spark.sql.execution.aggregate.BaseAggregateExec) node)
                .requiredChildDistributionExpressions().isEmpty();
    }

    /** The topmost nodes of the logical plan whose rows are there. */
    private void findHeld(LogicalPlan node) {
        if (node instanceof LogicalQueryStage) {
            LogicalQueryStage stage = (LogicalQueryStage) node;
            if (isThere(stage.physicalPlan()) && hold(node, stage.physicalPlan())) {
                return;
            }
            // Its own node may be linked to a stage that has parts of its rows.
            if (stage.logicalPlan() instanceof InMemoryRelation) {
                findHeld(stage.logicalPlan());
            } else {
                findBelow(stage.logicalPlan());
            }
            return;
        }
        Object physical = links.get(node);
        if (physical != null && isThere((SparkPlan) physical) && hold(node, (SparkPlan) physical)) {
            return;
        }
        if (node instanceof InMemoryRelation && isCached((InMemoryRelation) node)) {
            hold(node, new InMemoryTableScanExec(
                node.output(), (scala.collection.immutable.Seq) scala.collection.immutable.Nil$.MODULE$,
                (InMemoryRelation) node));
            return;
        }
        findBelow(node);
    }

    /** Whether all rows of a table that the session has cached are there: no other session has them. */
    private static boolean isCached(InMemoryRelation table) {
        return table.cacheBuilder().isCachedColumnBuffersLoaded();
    }

    private void findBelow(LogicalPlan node) {
        findInExpressions(node);
        scala.collection.Seq children = ((TreeNode) node).children();
        for (int i = 0; i < children.length(); i++) {
            findHeld((LogicalPlan) children.apply(i));
        }
    }

    /**
     * Parts that are the same as one of which all rows are there. Where a stage is used twice, Spark does
     * not plan what it is made from a second time, and no stage of those below it is linked there.
     */
    private void findAlike(LogicalPlan node) {
        if (held.containsKey(node)) {
            return;
        }
        for (int i = 0; i < origins.size(); i++) {
            LogicalPlan origin = (LogicalPlan) origins.get(i);
            if (isWhole((SparkPlan) states.get(i)) && unstaged(origin).sameResult(unstaged(node))) {
                held.put(node, held.get(origin));
                return;
            }
        }
        LogicalPlan inner = unstaged(node);
        scala.collection.Seq children = ((TreeNode) inner).children();
        for (int i = 0; i < children.length(); i++) {
            findAlike((LogicalPlan) children.apply(i));
        }
    }

    /** The same for subqueries: one that Spark has not planned, as it is below a stage that is used
     * twice, stands where the one that it has planned does. */
    private void findAlikeSubqueries() {
        for (int i = 0; i < unplanned.size(); i++) {
            org.apache.spark.sql.catalyst.expressions.ScalarSubquery other =
                (org.apache.spark.sql.catalyst.expressions.ScalarSubquery) unplanned.get(i);
            for (int j = 0; j < planned.size(); j++) {
                org.apache.spark.sql.catalyst.expressions.ScalarSubquery known =
                    (org.apache.spark.sql.catalyst.expressions.ScalarSubquery) planned.get(j);
                if (((LogicalPlan) known.plan()).sameResult((LogicalPlan) other.plan())) {
                    subqueries.put(Long.valueOf(other.exprId().id()),
                        subqueries.get(Long.valueOf(known.exprId().id())));
                    break;
                }
            }
        }
    }

    private static LogicalPlan unstaged(LogicalPlan node) {
        return node instanceof LogicalQueryStage
            ? ((LogicalQueryStage) node).logicalPlan() : node;
    }

    private void findInExpressions(LogicalPlan node) {
        scala.collection.Seq expressions = node.expressions();
        for (int i = 0; i < expressions.length(); i++) {
            findInExpression((Expression) expressions.apply(i));
        }
    }

    private void findInExpression(Expression expression) {
        if (expression instanceof org.apache.spark.sql.catalyst.expressions.ScalarSubquery) {
            org.apache.spark.sql.catalyst.expressions.ScalarSubquery subquery =
                (org.apache.spark.sql.catalyst.expressions.ScalarSubquery) expression;
            Object live = subqueries.get(Long.valueOf(subquery.exprId().id()));
            if (live != null) {
                planned.add(subquery);
                findHeld((LogicalPlan) live);
            } else {
                unplanned.add(subquery);
            }
        }
        scala.collection.Seq children = ((TreeNode) expression).children();
        for (int i = 0; i < children.length(); i++) {
            findInExpression((Expression) children.apply(i));
        }
    }

    /** Whether nothing but finished stages is below. */
    private static boolean isThere(SparkPlan node) {
        if (node instanceof QueryStageExec && isExchange((QueryStageExec) node)) {
            return ((QueryStageExec) node).isMaterialized();
        }
        scala.collection.Seq children = inputs(node);
        for (int i = 0; i < children.length(); i++) {
            if (!isThere((SparkPlan) children.apply(i))) {
                return false;
            }
        }
        return children.length() > 0;
    }

    private boolean hold(LogicalPlan logical, SparkPlan physical) {
        if (held.containsKey(logical)) {
            return true;
        }
        SparkPlan read = isKept(logical) ? null : readable(physical);
        int[] state = read == null ? null : places(logical, read);
        if (state == null) {
            return false;
        }
        for (int i = 0; i < passedOver.size(); i++) {
            if (same(passedOver.get(i), read)) {
                return false;
            }
        }
        state[0] = number(read);
        if (state[0] == origins.size()) {
            origins.add(logical);
        }
        held.put(logical, state);
        return true;
    }

    /** Whether it is nothing but rows of a state that was kept before, which need not be kept again. */
    private static boolean isKept(LogicalPlan logical) {
        LogicalPlan node = unstaged(logical);
        while (node instanceof org.apache.spark.sql.catalyst.plans.logical.Project
            || node instanceof org.apache.spark.sql.catalyst.plans.logical.Filter) {
            node = unstaged((LogicalPlan) ((TreeNode) node).children().apply(0));
        }
        if (!(node instanceof org.apache.spark.sql.execution.LogicalRDD)) {
            return false;
        }
        String name = ((org.apache.spark.sql.execution.LogicalRDD) node).rdd().name();
        return name != null && name.startsWith(TreeText.STATE);
    }

    /** The same rows for two readers are one state. */
    private int number(SparkPlan physical) {
        for (int i = 0; i < states.size(); i++) {
            if (same(states.get(i), physical)) {
                return i;
            }
        }
        states.add(physical);
        return states.size() - 1;
    }

    /** A broadcast table is read itself; one that only remembers that a key was null has no rows. */
    private static SparkPlan readable(SparkPlan physical) {
        SparkPlan node = physical;
        while (node != null && !(node instanceof BroadcastQueryStageExec)
            && !(node instanceof ShuffleQueryStageExec)) {
            scala.collection.Seq children = inputs(node);
            node = children.length() == 1 ? (SparkPlan) children.apply(0) : null;
        }
        if (!(node instanceof BroadcastQueryStageExec)) {
            return physical;
        }
        Object relation = relation((BroadcastQueryStageExec) node);
        boolean rows = relation instanceof InternalRow[] || relation instanceof LongHashedRelation
            || relation instanceof UnsafeHashedRelation
            || relation.getClass().getSimpleName().startsWith("EmptyHashedRelation");
        return rows ? node : null;
    }

    private static QueryStageExec stageBelow(SparkPlan node) {
        if (node instanceof QueryStageExec) {
            return (QueryStageExec) node;
        }
        scala.collection.Seq children = inputs(node);
        return children.length() == 1 ? stageBelow((SparkPlan) children.apply(0)) : null;
    }

    /** Where the columns of the logical node are among those of the physical one, from 1 on. */
    private static int[] places(LogicalPlan logical, SparkPlan physical) {
        scala.collection.Seq wanted = logical.output();
        scala.collection.Seq found = physical.output();
        int[] places = new int[wanted.length() + 1];
        for (int i = 0; i < wanted.length(); i++) {
            int place = -1;
            for (int j = 0; j < found.length() && place < 0; j++) {
                if (((Attribute) found.apply(j)).exprId().equals(((Attribute) wanted.apply(i)).exprId())) {
                    place = j;
                }
            }
            if (place < 0) {
                return null;
            }
            places[i + 1] = place;
        }
        return places;
    }

    private void visitSubqueries(SparkPlan node) {
        scala.collection.Seq expressions = node.expressions();
        for (int i = 0; i < expressions.length(); i++) {
            visitExpression((Expression) expressions.apply(i));
        }
    }

    private void visitExpression(Expression expression) {
        if (expression instanceof ScalarSubquery) {
            ScalarSubquery subquery = (ScalarSubquery) expression;
            Long id = Long.valueOf(subquery.exprId().id());
            if (!subqueries.containsKey(id)) {
                SparkPlan plan = (SparkPlan) subquery.plan();
                while (plan != null && !(plan instanceof AdaptiveSparkPlanExec)) {
                    plan = below(plan);
                }
                LogicalPlan logical = plan == null ? null : current(plan);
                if (logical != null) {
                    subqueries.put(id, logical);
                }
            }
        }
        scala.collection.Seq children = ((TreeNode) expression).children();
        for (int i = 0; i < children.length(); i++) {
            visitExpression((Expression) children.apply(i));
        }
    }

    private static LogicalPlan link(SparkPlan node) {
        scala.Option temporary =
            ((TreeNode) node).getTagValue(AdaptiveSparkPlanExec.TEMP_LOGICAL_PLAN_TAG());
        scala.Option link = temporary.isDefined() ? temporary : node.logicalLink();
        return link.isDefined() ? (LogicalPlan) link.get() : null;
    }

    private static SparkPlan below(SparkPlan node) {
        scala.collection.Seq children = inputs(node);
        return children.length() == 1 ? (SparkPlan) children.apply(0) : null;
    }

    /** The children, and what wrappers that call themselves leaves hold. */
    private static scala.collection.Seq inputs(SparkPlan node) {
        SparkPlan inner = null;
        if (node instanceof QueryStageExec) {
            inner = ((QueryStageExec) node).plan();
        } else if (node instanceof AdaptiveSparkPlanExec) {
            inner = ((AdaptiveSparkPlanExec) node).executedPlan();
        } else if (node instanceof org.apache.spark.sql.execution.exchange.ReusedExchangeExec) {
            inner = (SparkPlan) ((org.apache.spark.sql.execution.exchange.ReusedExchangeExec) node).child();
        } else if (node instanceof org.apache.spark.sql.execution.ReusedSubqueryExec) {
            inner = ((org.apache.spark.sql.execution.ReusedSubqueryExec) node).child();
        }
        if (inner == null) {
            return ((TreeNode) node).children();
        }
        return scala.jdk.javaapi.CollectionConverters.asScala(
            java.util.Collections.singletonList(inner)).toSeq();
    }

    private static boolean isExchange(QueryStageExec stage) {
        return stage instanceof ShuffleQueryStageExec || stage instanceof BroadcastQueryStageExec;
    }
}
