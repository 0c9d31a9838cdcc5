package headway;

import java.util.concurrent.Callable;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.ThreadPoolExecutor;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.CommonExpressionDef;
import org.apache.spark.sql.catalyst.expressions.CommonExpressionRef;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.LeafExpression;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/**
 * The plans of many queries, made by threads of this JVM, and each form of a query planned once.
 *
 * Queries that differ only in constants which columns are compared with have one form: the parsed
 * text with numbered blanks in place of the constants. A blank cannot be evaluated, so nothing that
 * Spark does with the form can depend on what is to stand there, and its plan is one of every such
 * query. What Spark would do to a constant by its value is not left to blanks: the form has that
 * constant itself.
 *
 * Compiled by Janino, which Spark brings along; so no syntax beyond what that reads.
 */
public final class ManyPlans {

    private static final int AHEAD = 16;
    private static final String MARK = "headway blank";
    /** More than there are cores: some wait for the form that another one is making. */
    private static final int MOST_THREADS =
        Math.max(4, Math.min(12, 2 * Runtime.getRuntime().availableProcessors()));
    private static final ThreadPoolExecutor THREADS = new ThreadPoolExecutor(
        MOST_THREADS, MOST_THREADS, 10L, java.util.concurrent.TimeUnit.SECONDS,
        new java.util.concurrent.LinkedBlockingQueue(),
        new java.util.concurrent.ThreadFactory() {
            public Thread newThread(Runnable work) {
                Thread made = new Thread(work, "headway-plans");
                made.setDaemon(true);
                return made;
            }
        });

    static {
        THREADS.allowCoreThreadTimeOut(true);  // a context that has ended leaves none behind
    }

    /** For py4j, which calls methods of objects with less ado than those of classes. */
    public ManyPlans() {
    }

    /**
     * Plans these texts, with one character between them; `keys` are settings. With
     * `forms`, each form is planned once.
     */
    public static Work begin(Object session, Object texts, Object keys, boolean forms) {
        String[] each = ((String) texts).split("\u0001", -1);
        return new Work((SparkSession) session, each, (String) keys, forms);
    }

    /** Texts that are planned together. They, and their forms, are known by their numbers. */
    public static final class Work {

        private final SparkSession session;
        private final String[] texts;
        private final String keys;
        private final boolean forms;
        private final Future[] seen;
        private final java.util.List made = new java.util.ArrayList();
        private final java.util.Map known = new java.util.concurrent.ConcurrentHashMap();
        private final java.util.Set neverBlank = java.util.concurrent.ConcurrentHashMap.newKeySet();
        private volatile int acting = Integer.MAX_VALUE;
        private int begun = 0;

        Work(SparkSession session, String[] texts, String keys, boolean forms) {
            this.session = session;
            this.texts = texts;
            this.keys = keys;
            this.forms = forms;
            this.seen = new Future[texts.length];
        }

        /** Some texts ahead: who asks for them then does something with the first ones. */
        private synchronized void beginUpTo(int last) {
            for (; begun < texts.length && begun <= last; begun++) {
                final int number = begun;
                seen[number] = THREADS.submit(new Callable() {
                    public Object call() {
                        return session.withActive(new scala.runtime.AbstractFunction0() {
                            public Object apply() {
                                return see(number);
                            }
                        });
                    }
                });
            }
        }

        /**
         * The number of the query's form, the constants of the query, and what TreeText tells of
         * the form. A query that is planned by itself has a form of its own, and no constants. Null where Spark would act as soon as it sees the text:
         * that one is not touched, and nothing is made of those after it. Throws what Spark says of
         * a text that is wrong.
         */
        public String about(int number) throws Exception {
            beginUpTo(number + AHEAD);
            Seen found = seen(number);
            if (found == null) {
                awaitAll();
            }
            return found == null ? null : found.told();
        }

        /** Nobody is to look at tables while the caller changes them. */
        private synchronized void awaitAll() {
            for (int i = 0; i < begun; i++) {
                try {
                    result(seen[i]);
                } catch (Exception error) {
                    continue;  // the caller comes to that text, or has been told
                }
            }
        }

        /** The query itself, as it was analysed: its tables may have changed their meaning since. */
        public Object frame(int number) throws Exception {
            return seen(number).frame(session);
        }

        /** The analysed plan of a form. */
        public Object analysed(int form) {
            return form(form).plan;
        }

        /** Begins to optimise a form in another session. */
        public void optimise(final Object other, int form) {
            final LogicalPlan plan = form(form).plan;
            form(form).optimised = THREADS.submit(new Callable() {
                public Object call() {
                    return TreeText.optimised(other, plan);
                }
            });
        }

        /** The text of an optimised form. */
        public String text(int form) throws Exception {
            return (String) ((Object[]) result(form(form).optimised))[0];
        }

        /** The plan that was told of. */
        public Object plan(int form) throws Exception {
            return ((Object[]) result(form(form).optimised))[1];
        }

        private Form form(int number) {
            synchronized (made) {
                return (Form) made.get(number);
            }
        }

        private Form newForm(LogicalPlan parsed) {
            Form form = new Form(session, parsed, keys);
            synchronized (made) {
                form.number = made.size();
                made.add(form);
            }
            return form;
        }

        private Seen seen(int number) throws Exception {
            Object found = result(seen[number]);
            if (found instanceof Exception) {
                throw (Exception) found;
            }
            return (Seen) found;
        }

        /** In the session, whose settings the parser asks for. */
        private Object see(int number) {
            if (number > acting) {
                return null;
            }
            LogicalPlan parsed;
            try {
                parsed = session.sessionState().sqlParser().parsePlan(texts[number]);
            } catch (org.apache.spark.sql.catalyst.parser.ParseException error) {
                return error;  // to be thrown to who asks
            }
            if (acts(parsed)) {
                synchronized (this) {
                    acting = Math.min(acting, number);
                }
                return null;
            }
            Seen found = forms ? seenInForm(parsed) : null;
            return found != null ? found : new Seen(newForm(parsed), null);
        }

        /** Null where the query has to be planned by itself. */
        private Seen seenInForm(LogicalPlan parsed) {
            java.util.Set fixed = new java.util.HashSet();
            while (true) {
                Blanking blanking = new Blanking(fixed);
                final LogicalPlan blank =
                    (LogicalPlan) parsed.transformAllExpressionsWithSubqueries(blanking);
                if (fixed.addAll(blanking.seenIn(neverBlank))) {
                    continue;  // what another query was found to need
                }
                FutureTask own = new FutureTask(new Callable() {
                    public Object call() {
                        Form form = newForm(blank);
                        form.settle();
                        return form;
                    }
                });
                Object before = known.putIfAbsent(new Unresolved(blank), own);
                if (before == null) {
                    own.run();
                }
                Form form;
                try {
                    form = (Form) result(before == null ? own : (Future) before);
                } catch (Exception error) {
                    return null;
                }
                if (form.isPlain && fixed.addAll(form.fixed)) {
                    neverBlank.addAll(blanking.onlyPlaces(form.fixed));
                    continue;
                }
                java.util.List constants =
                    form.isPlain ? form.constants(blanking.literals()) : null;
                Seen found = constants == null ? null : new Seen(form, constants);
                return found == null || readsCache(session, found.plan()) ? null : found;
            }
        }
    }

    /** The ids of columns that come from tables, and of common expressions that are such a one. */
    private static java.util.Set columnsOf(LogicalPlan plan) {
        final java.util.Set found = new java.util.HashSet();
        java.util.Iterator nodes = TreeText.nodes(plan).iterator();
        while (nodes.hasNext()) {
            LogicalPlan node = (LogicalPlan) nodes.next();
            boolean isTable = node.getClass().getSimpleName().equals("LogicalRelation");
            for (int i = 0; isTable && i < node.output().length(); i++) {
                found.add(((NamedExpression) node.output().apply(i)).exprId());
            }
        }
        plan.transformAllExpressionsWithSubqueries(new scala.runtime.AbstractPartialFunction() {
            public boolean isDefinedAt(Object expression) {
                return expression instanceof CommonExpressionDef
                    && ((CommonExpressionDef) expression).child() instanceof AttributeReference;
            }

            public Object applyOrElse(Object expression, scala.Function1 otherwise) {
                if (!isDefinedAt(expression)) {
                    return otherwise.apply(expression);
                }
                CommonExpressionDef common = (CommonExpressionDef) expression;
                if (found.contains(((AttributeReference) common.child()).exprId())) {
                    found.add(common.id());
                }
                return expression;
            }
        });
        return found;
    }

    /** A text that was looked at; without constants where it is planned by itself. */
    private static final class Seen {
        final Form form;
        private static final scala.collection.immutable.Seq NOTHING =
            scala.jdk.javaapi.CollectionConverters.asScala(new java.util.ArrayList()).toSeq();
        private final java.util.List constants;

        Seen(Form form, java.util.List constants) {
            this.form = form;
            this.constants = constants;
        }

        String told() {
            String told = constants == null ? "" : TreeText.constants(constants);
            return form.number + "\u0001" + told + "\u0001" + form.about;
        }

        Dataset frame(SparkSession session) {
            return constants == null ? form.frame : Dataset.ofRows(session, renamed(plan()));
        }

        /** With ids of its own for its columns: those of another query of the form have the same. */
        private static LogicalPlan renamed(LogicalPlan plan) {
            java.util.List columns = new java.util.ArrayList();
            for (int i = 0; i < plan.output().length(); i++) {
                Expression column = (Expression) plan.output().apply(i);
                String name = ((NamedExpression) column).name();
                columns.add(new Alias(column, name, NamedExpression$.MODULE$.newExprId(), NOTHING,
                    scala.Option.empty(), NOTHING));
            }
            return new org.apache.spark.sql.catalyst.plans.logical.Project(
                scala.jdk.javaapi.CollectionConverters.asScala(columns).toSeq(), plan);
        }

        /** The analysed plan of the query itself, where it has a form. */
        LogicalPlan plan() {
            LogicalPlan plan = (LogicalPlan) form.plan.transformAllExpressionsWithSubqueries(
                new scala.runtime.AbstractPartialFunction() {
                    public boolean isDefinedAt(Object expression) {
                        return expression instanceof Blank;
                    }

                    public Object applyOrElse(Object expression, scala.Function1 otherwise) {
                        return isDefinedAt(expression)
                            ? constants.get(((Blank) expression).number)
                            : otherwise.apply(expression);
                    }
                });
            plan.setAnalyzed();
            return plan;
        }
    }

    /** What queries have in common, or a query by itself, after Spark has analysed it. */
    private static final class Form {
        int number;
        Future optimised;
        final Dataset frame;
        final String about;
        final java.util.Set fixed = new java.util.HashSet();
        LogicalPlan plan;
        boolean isPlain = true;
        private java.util.Collection blanks;

        Form(SparkSession session, LogicalPlan parsed, String keys) {
            this.frame = Dataset.ofRows(session, parsed);
            this.about = TreeText.about(frame.queryExecution(), keys);
            this.plan = frame.queryExecution().analyzed();
        }

        /** Blanks become those of constants as they are compared; others must not be ones. */
        void settle() {
            isPlain =
                TreeText.tables(plan) != null && !TreeText.isMomentary(plan) && onlyPlain(plan)
                && !plan.schema().json().contains(MARK);  // a column that is named by its text
            Settling settling = new Settling(columnsOf(plan));
            plan = (LogicalPlan) plan.transformAllExpressionsWithSubqueries(settling);
            plan.setAnalyzed();
            blanks = settling.blanks();
            final java.util.Set left = fixed;
            plan.transformAllExpressionsWithSubqueries(new scala.runtime.AbstractPartialFunction() {
                public boolean isDefinedAt(Object expression) {
                    return expression instanceof Blank && !((Blank) expression).settled;
                }

                public Object applyOrElse(Object expression, scala.Function1 otherwise) {
                    if (!isDefinedAt(expression)) {
                        return otherwise.apply(expression);
                    }
                    left.add(Integer.valueOf(((Blank) expression).number));
                    return expression;
                }
            });
        }

        /** Those of a query, from its literals. Null where one of them has no value. */
        java.util.List constants(final java.util.List literals) {
            java.util.List found = new java.util.ArrayList();
            java.util.Iterator each = blanks.iterator();
            while (each.hasNext()) {
                Expression expression = (Expression) each.next();
                Expression constant = expression instanceof Blank
                    ? literal(expression, literals)
                    : (Expression) expression.mapChildren(new scala.runtime.AbstractFunction1() {
                        public Object apply(Object child) {
                            return literal(child, literals);
                        }
                    });
                Object value;
                try {
                    value = constant.eval(null);
                } catch (Exception error) {
                    return null;  // whoever runs it is told
                }
                if (value == null) {
                    return null;
                }
                found.add(new Literal(value, constant.dataType()));
            }
            return found;
        }

        private static Expression literal(Object blank, java.util.List literals) {
            return (Expression) literals.get(((Blank) blank).number);
        }
    }

    /** Throws what was thrown by who made it. */
    private static Object result(Future made) throws Exception {
        try {
            return made.get();
        } catch (java.util.concurrent.ExecutionException error) {
            if (error.getCause() instanceof Error) {
                throw (Error) error.getCause();
            }
            throw (Exception) error.getCause();
        }
    }

    /** Whether Spark holds rows of the plan, which it finds by what they were made with. */
    private static boolean readsCache(SparkSession session, LogicalPlan plan) {
        org.apache.spark.sql.execution.CacheManager held = session.sharedState().cacheManager();
        if (held.isEmpty()) {
            return false;
        }
        LogicalPlan present = held.useCachedData(plan, held.useCachedData$default$2());
        java.util.Iterator nodes = TreeText.nodes(present).iterator();
        while (nodes.hasNext()) {
            if (nodes.next().getClass().getSimpleName().equals("InMemoryRelation")) {
                return true;
            }
        }
        return false;
    }

    /** Whether Spark does something when it sees the parsed text: a command, or a script. */
    private static boolean acts(LogicalPlan parsed) {
        if (parsed instanceof org.apache.spark.sql.catalyst.plans.logical.Command
            || parsed instanceof org.apache.spark.sql.catalyst.plans.logical.ParsedStatement
            || TreeText.actsAtOnce(parsed)) {
            return true;
        }
        scala.collection.Seq children = ((TreeNode) parsed).children();
        for (int i = 0; i < children.length(); i++) {
            if (acts((LogicalPlan) children.apply(i))) {
                return true;
            }
        }
        return false;
    }

    /**
     * Whether the optimizer treats constants in it as it treats blanks: it looks at them to turn
     * outer joins into others, to choose partitions, and where rows are numbered.
     */
    private static boolean onlyPlain(LogicalPlan plan) {
        java.util.Iterator nodes = TreeText.nodes(plan).iterator();
        while (nodes.hasNext()) {
            Object node = nodes.next();
            if (node.getClass().getSimpleName().equals("Window") || TreeText.isPartitioned(node)
                || node instanceof Join && ((Join) node).joinType().toString().endsWith("Outer")) {
                return false;
            }
        }
        return true;
    }

    /** A parsed text with blanks, equal to those that differ in nothing but the ids of names. */
    private static final class Unresolved {
        private final Object plan;

        Unresolved(LogicalPlan parsed) {
            this.plan = parsed.transformAllExpressionsWithSubqueries(
                new scala.runtime.AbstractPartialFunction() {
                    public boolean isDefinedAt(Object expression) {
                        return expression instanceof Alias;
                    }

                    public Object applyOrElse(Object expression, scala.Function1 otherwise) {
                        if (!isDefinedAt(expression)) {
                            return otherwise.apply(expression);
                        }
                        Alias alias = (Alias) expression;
                        return new Alias(alias.child(), alias.name(), ID, alias.qualifier(),
                            alias.explicitMetadata(), alias.nonInheritableMetadataKeys());
                    }
                });
        }

        private static final ExprId ID = ExprId.apply(0L);

        public int hashCode() {
            return plan.hashCode();
        }

        public boolean equals(Object other) {
            return other instanceof Unresolved && plan.equals(((Unresolved) other).plan);
        }
    }

    /** A function of comparisons whose sides may be changed. */
    private abstract static class Comparing extends scala.runtime.AbstractPartialFunction {

        public Object applyOrElse(Object expression, scala.Function1 otherwise) {
            if (!isDefinedAt(expression)) {
                return otherwise.apply(expression);
            }
            final TreeNode comparison = (TreeNode) expression;
            return comparison.mapChildren(new scala.runtime.AbstractFunction1() {
                public Object apply(Object side) {
                    return changed(side, comparison);
                }
            });
        }

        abstract Object changed(Object side, TreeNode comparison);

        static boolean isComparison(Object expression) {
            return expression instanceof EqualTo || expression instanceof LessThan
                || expression instanceof LessThanOrEqual || expression instanceof GreaterThan
                || expression instanceof GreaterThanOrEqual || expression instanceof In;
        }
    }

    /** Puts blanks in place of constants: equal constants of a query get the same one. */
    private static final class Blanking extends Comparing {
        private final java.util.Map numbers = new java.util.LinkedHashMap();
        private final java.util.Map places = new java.util.HashMap();
        private final java.util.Set fixed;

        /** Constants with numbers that are `fixed` stay. */
        Blanking(java.util.Set fixed) {
            this.fixed = fixed;
        }

        /** The numbers of constants that stand in one of these places. */
        java.util.Set seenIn(java.util.Set wanted) {
            java.util.Set found = new java.util.HashSet();
            java.util.Iterator each = places.keySet().iterator();
            while (each.hasNext()) {
                Object number = each.next();
                if (!java.util.Collections.disjoint((java.util.Set) places.get(number), wanted)) {
                    found.add(number);
                }
            }
            return found;
        }

        /** The places of constants with these numbers, where they have no other. */
        java.util.Set onlyPlaces(java.util.Set wanted) {
            java.util.Set found = new java.util.HashSet();
            java.util.Iterator each = wanted.iterator();
            while (each.hasNext()) {
                java.util.Set there = (java.util.Set) places.get(each.next());
                if (there.size() == 1) {
                    found.addAll(there);
                }
            }
            return found;
        }

        /** What a constant is compared with, and how. */
        private static String place(TreeNode comparison, Object constant) {
            StringBuilder text = new StringBuilder(comparison.nodeName());
            scala.collection.Seq sides = comparison.children();
            for (int i = 0; i < sides.length(); i++) {
                if (!(sides.apply(i) instanceof Literal)) {
                    text.append(' ').append(sides.apply(i));
                }
            }
            return text.append(' ').append(((Literal) constant).dataType()).toString();
        }

        public boolean isDefinedAt(Object expression) {
            if (!isComparison(expression) && !isBetween(expression)) {
                return false;
            }
            scala.collection.Seq sides = ((TreeNode) expression).children();
            boolean hasColumn = false;
            boolean hasConstant = false;
            for (int i = 0; i < sides.length(); i++) {
                hasColumn = hasColumn || sides.apply(i) instanceof UnresolvedAttribute;
                hasConstant = hasConstant || sides.apply(i) instanceof Literal;
            }
            return hasColumn && hasConstant;
        }

        private static boolean isBetween(Object expression) {
            return expression instanceof UnresolvedFunction
                && ((UnresolvedFunction) expression).nameParts().length() == 1
                && ((UnresolvedFunction) expression).nameParts().apply(0).equals("between");
        }

        Object changed(Object side, TreeNode comparison) {
            if (!(side instanceof Literal) || ((Literal) side).value() == null) {
                return side;
            }
            Integer number = (Integer) numbers.get(side);
            if (number == null) {
                number = Integer.valueOf(numbers.size());
                numbers.put(side, number);
                places.put(number, new java.util.HashSet());
            }
            ((java.util.Set) places.get(number)).add(place(comparison, side));
            return fixed.contains(number)
                ? side : new Blank(number.intValue(), ((Literal) side).dataType(), false);
        }

        /** By number. */
        java.util.List literals() {
            return new java.util.ArrayList(numbers.keySet());
        }
    }

    /**
     * Settles the blanks that columns are compared with, by themselves or as they are cast for that:
     * each gets a number by what is to be evaluated of it.
     */
    private static final class Settling extends Comparing {
        private final java.util.Map numbers = new java.util.LinkedHashMap();
        private static final String PADDED = "__CHAR_VARCHAR_TYPE_STRING";
        private final java.util.Set columns;

        /** `columns` are the ids of those that come from tables: others may be constants too. */
        Settling(java.util.Set columns) {
            this.columns = columns;
        }

        public boolean isDefinedAt(Object expression) {
            if (!isComparison(expression)) {
                return false;
            }
            scala.collection.Seq sides = ((TreeNode) expression).children();
            int others = 0;
            java.util.Set found = new java.util.HashSet();
            for (int i = 0; i < sides.length(); i++) {
                if (isColumn(sides.apply(i))) {
                    others++;
                } else if (isBlank(sides.apply(i))) {
                    found.add(sides.apply(i));
                }
            }
            // Of values that occur twice, or are alone, the optimizer makes something else.
            boolean isIn = expression instanceof In;
            return others == 1 && found.size() == sides.length() - 1
                && (isIn ? found.size() > 1 && isColumn(sides.apply(0)) : found.size() == 1);
        }

        /** The second is one within BETWEEN, the third is of IN and casts nothing. */
        private boolean isColumn(Object side) {
            return side instanceof AttributeReference
                && columns.contains(((AttributeReference) side).exprId())
                && !((AttributeReference) side).metadata().contains(PADDED)
                || side instanceof CommonExpressionRef
                && columns.contains(((CommonExpressionRef) side).id())
                || side instanceof Cast
                && ((Cast) side).child().dataType().equals(((Cast) side).dataType())
                && isColumn(((Cast) side).child());
        }

        /** Of a type whose values have a text. */
        private static boolean isBlank(Object side) {
            DataType type = ((Expression) side).dataType();
            return (side instanceof Blank
                || side instanceof Cast && ((Cast) side).child() instanceof Blank)
                && (type.equals(DataTypes.IntegerType) || type.equals(DataTypes.LongType)
                || type.equals(DataTypes.ShortType) || type.equals(DataTypes.ByteType)
                || type.equals(DataTypes.DoubleType) || type.equals(DataTypes.DateType)
                || type.equals(DataTypes.StringType)
                || type instanceof org.apache.spark.sql.types.DecimalType);
        }

        Object changed(Object side, TreeNode comparison) {
            if (!isBlank(side)) {
                return side;
            }
            Integer number = (Integer) numbers.get(side);
            if (number == null) {
                number = Integer.valueOf(numbers.size());
                numbers.put(side, number);
            }
            return new Blank(number.intValue(), ((Expression) side).dataType(), true);
        }

        /** What to evaluate, by number. */
        java.util.Collection blanks() {
            return numbers.keySet();
        }
    }

    /**
     * Stands for a constant that is not known yet. It is not marked as one that cannot be evaluated:
     * Spark would keep what it stands in out of joins. Whoever evaluates it anyhow has no form.
     */
    public static final class Blank extends LeafExpression {
        final int number;
        final boolean settled;
        private final DataType type;

        /** One that is `settled` stands where a constant of its very type is to stand. */
        public Blank(int number, DataType type, boolean settled) {
            this.number = number;
            this.type = type;
            this.settled = settled;
        }

        public DataType dataType() {
            return type;
        }

        public boolean nullable() {
            return false;
        }

        public String sql() {
            return MARK;
        }

        public boolean foldable() {
            return false;
        }

        public Object eval(org.apache.spark.sql.catalyst.InternalRow row) {
            throw new UnsupportedOperationException("a blank has no value");
        }

        public org.apache.spark.sql.catalyst.expressions.codegen.ExprCode doGenCode(
            org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext context,
            org.apache.spark.sql.catalyst.expressions.codegen.ExprCode code) {
            throw new UnsupportedOperationException("a blank has no value");
        }

        public int productArity() {
            return 3;
        }

        public Object productElement(int place) {
            return place == 0 ? (Object) Integer.valueOf(number)
                : place == 1 ? (Object) type : (Object) Boolean.valueOf(settled);
        }

        public String productElementName(int place) {
            return place == 0 ? "number" : place == 1 ? "dataType" : "settled";
        }

        public boolean canEqual(Object other) {
            return other instanceof Blank;
        }

        public boolean equals(Object other) {
            return other instanceof Blank && ((Blank) other).number == number
                && ((Blank) other).settled == settled && ((Blank) other).type.equals(type);
        }
    }
}
