package headway;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.ScalarSubquery;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.adaptive.LogicalQueryStage;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * A tree of Catalyst as one JSON text, with all that a reader asks of its nodes.
 *
 * Nodes are written as TreeNode.toJSON does: a list, parents first, each with its number of
 * children; a child among the fields is its number. That one takes tens of milliseconds for a plan,
 * writes nested CASEs exponentially often, and leaves out types and evaluation modes.
 *
 * Compiled by Janino, which Spark brings along; so no syntax beyond what that reads.
 */
public final class TreeText {

    /** What the name of an RDD begins with that reads a kept state. */
    public static final String STATE = "headway-state ";

    private static final int LONG = 4096;
    private static final Object NONE = new Object();
    private static final java.util.Map METHODS = new java.util.concurrent.ConcurrentHashMap();

    private final StringBuilder text = new StringBuilder();
    private final java.util.Map types = new java.util.LinkedHashMap();
    private boolean deterministic = true;
    private java.util.Map held = java.util.Collections.EMPTY_MAP;
    private java.util.Map subqueries = java.util.Collections.EMPTY_MAP;
    private java.util.List used = null;
    private java.util.List nodes = null;
    private java.util.Set wanted = null;

    /** For py4j, which calls methods of objects with less ado than those of classes. */
    public TreeText() {
    }

    /**
     * {"deterministic": ..., "nodes": [...], "types": [...], "collation": ...}, packed. An
     * expression's facts are under "#": the number of its type, whether it may be null, its evaluation mode, whether it may lose decimal precision, and
     * its name as a function; null where there is none. A plan's facts: the number of its schema,
     * its attributes, and which files a table has.
     */
    public static String of(Object root) {
        return written((TreeNode) root);
    }

    /** An analysed plan, optimised in that session: its text, and the plan itself. */
    public static Object[] optimised(Object session, Object analysed) {
        LogicalPlan plan = ((org.apache.spark.sql.classic.SparkSession) session)
            .sessionState()
            .executePlan(
                (LogicalPlan) analysed,
                org.apache.spark.sql.execution.CommandExecutionMode.SKIP())
            .optimizedPlan();
        TreeText tree = new TreeText();
        tree.wanted = new java.util.HashSet();
        tree.want(plan);
        return new Object[] {tree.whole(plan), plan};
    }

    /**
     * The columns of a plan and those that any of its operators reads, by their ids: a table has
     * dozens of others. Operators that read more than their expressions tell want all of theirs.
     */
    private void want(LogicalPlan plan) {
        wantAll(plan.output());
        java.util.ArrayDeque waiting = new java.util.ArrayDeque();
        waiting.add(plan);
        while (!waiting.isEmpty()) {
            LogicalPlan node = (LogicalPlan) waiting.poll();
            scala.collection.Seq expressions = node.expressions();
            for (int i = 0; i < expressions.length() && !isRelation(node); i++) {
                wantAll(((Expression) expressions.apply(i)).references().toSeq());
            }
            scala.collection.Seq subqueries = node.subqueries();
            for (int i = 0; i < subqueries.length(); i++) {
                want((LogicalPlan) subqueries.apply(i));
            }
            scala.collection.Seq children = ((TreeNode) node).children();
            for (int i = 0; i < children.length(); i++) {
                LogicalPlan child = (LogicalPlan) children.apply(i);
                if (!readsByName(node)) {
                    wantAll(child.output());
                }
                waiting.add(child);
            }
        }
    }

    private void wantAll(scala.collection.Seq attributes) {
        for (int i = 0; i < attributes.length(); i++) {
            wanted.add(Long.valueOf(id(attributes.apply(i))));
        }
    }

    private static long id(Object attribute) {
        return ((org.apache.spark.sql.catalyst.expressions.NamedExpression) attribute).exprId().id();
    }

    private static boolean readsByName(Object plan) {
        String name = plan.getClass().getSimpleName();
        return name.equals("Project") || name.equals("Filter") || name.equals("Join")
            || name.equals("Aggregate") || name.equals("Sort") || name.equals("Window")
            || name.endsWith("Limit");
    }

    /**
     * Of a query that was analysed: whether it is a command, the hash of its plan, whether it means
     * something else the next time, its files, the names of its columns, its schema unless that is
     * long, its session, and the values of these settings.
     */
    public static String about(Object execution, Object keys) {
        QueryExecution query = (QueryExecution) execution;
        LogicalPlan plan = query.analyzed();
        org.apache.spark.sql.classic.SparkSession session = query.sparkSession();
        StringBuilder text = new StringBuilder();
        text.append(query.commandExecuted().getClass().getSimpleName().equals("CommandResult"));
        text.append("\u0001").append(numbered(plan).semanticHash());
        text.append("\u0001").append(isMomentary(plan));
        text.append("\u0001").append(tables(plan));
        text.append("\u0001").append(plan.schema().fieldNames().length);
        String[] names = plan.schema().fieldNames();
        for (int i = 0; i < names.length; i++) {
            text.append("\u0001").append(names[i]);
        }
        String schema = plan.schema().json();
        text.append("\u0001").append(schema.length() < LONG ? schema : "");
        text.append("\u0001").append(session.sessionUUID()).append(':');
        text.append(session.sessionState().conf().getAllConfs().hashCode());
        return text.append("\u0001").append(settings(session, keys)).toString();
    }

    /** Whether two analysed plans give the same rows. */
    public static boolean alike(Object one, Object other) {
        return numbered((LogicalPlan) one).sameResult(numbered((LogicalPlan) other));
    }

    /** With the common tables of a text numbered from the first one on: Spark counts all that it sees. */
    private static LogicalPlan numbered(LogicalPlan plan) {
        return org.apache.spark.sql.catalyst.normalizer.NormalizeCTEIds.apply(plan);
    }

    /** Whether it asks for the time, the user, a variable or chance: all become constants. */
    public static boolean isMomentary(LogicalPlan plan) {
        scala.collection.Seq expressions = plan.expressions();
        for (int i = 0; i < expressions.length(); i++) {
            if (isMomentaryExpression((Expression) expressions.apply(i))) {
                return true;
            }
        }
        scala.collection.Seq children = ((TreeNode) plan).children();
        for (int i = 0; i < children.length(); i++) {
            if (isMomentary((LogicalPlan) children.apply(i))) {
                return true;
            }
        }
        return false;
    }

    private static boolean isMomentaryExpression(Expression expression) {
        String name = expression.getClass().getSimpleName();
        if (name.startsWith("Current") || name.equals("Now") || name.equals("LocalTimestamp")
            || name.startsWith("Rand") || name.startsWith("Uuid") || name.startsWith("InputFile")
            || name.equals("VariableReference") || name.equals("SessionUser")) {
            return true;
        }
        if (expression instanceof org.apache.spark.sql.catalyst.expressions.SubqueryExpression) {
            LogicalPlan plan = (LogicalPlan)
                ((org.apache.spark.sql.catalyst.expressions.SubqueryExpression) expression).plan();
            if (isMomentary(plan)) {
                return true;
            }
        }
        scala.collection.Seq children = ((TreeNode) expression).children();
        for (int i = 0; i < children.length(); i++) {
            if (isMomentaryExpression((Expression) children.apply(i))) {
                return true;
            }
        }
        return false;
    }

    /** The rows of a relation of constants as an Arrow stream, without a task; nothing where there are none. */
    public static byte[] rows(Object relation) {
        org.apache.spark.sql.catalyst.plans.logical.LocalRelation local =
            (org.apache.spark.sql.catalyst.plans.logical.LocalRelation) relation;
        if (local.data().isEmpty()) {
            return new byte[0];
        }
        scala.collection.Iterator streams = arrow(local.data().iterator(), schema(local.output()));
        byte[] stream = (byte[]) streams.next();
        streams.hasNext();  // at its end it gives back its memory
        return stream;
    }

    /** Rows as Arrow streams of their own. */
    public static scala.collection.Iterator arrow(scala.collection.Iterator rows, StructType schema) {
        return org.apache.spark.sql.execution.arrow.ArrowConverters$.MODULE$
            .toBatchWithSchemaIterator(rows, schema, 0L, Long.MAX_VALUE, "UTC", true, false);
    }

    /** Columns c0, c1, ... Rows without columns get one: nothing else could tell how many there are. */
    public static StructType schema(scala.collection.Seq output) {
        StructType schema = new StructType();
        if (output.isEmpty()) {
            return schema.add("c0", org.apache.spark.sql.types.DataTypes.BooleanType, false);
        }
        for (int i = 0; i < output.length(); i++) {
            Attribute attribute = (Attribute) output.apply(i);
            schema = schema.add("c" + i, attribute.dataType(), attribute.nullable());
        }
        return schema;
    }

    /**
     * A plan that is being run. `held` has, by node whose rows are there, the number of its state
     * and the places of its columns in that, as an array of int: it is written as a leaf, and the
     * number is added to `used`. `subqueries` are the present plans of scalar subqueries. All nodes
     * are added to `nodes`, and have their place there under "@".
     */
    public static String running(LogicalPlan root, java.util.Map held, java.util.Map subqueries,
        java.util.List used, java.util.List nodes) {
        TreeText tree = new TreeText();
        tree.held = held;
        tree.subqueries = subqueries;
        tree.used = used;
        tree.nodes = nodes;
        return tree.whole(root);
    }

    private static String written(TreeNode root) {
        return new TreeText().whole(root);
    }

    private String whole(TreeNode root) {
        deterministic = !(root instanceof LogicalPlan) || ((LogicalPlan) root).deterministic();
        text.append("{\"nodes\":");
        writeTree(root);
        text.append(",\"deterministic\":").append(deterministic);
        text.append(",\"types\":[");
        java.util.Iterator found = types.keySet().iterator();
        while (found.hasNext()) {
            writeString(((DataType) found.next()).json());
            text.append(found.hasNext() ? "," : "");
        }
        text.append("],\"collation\":");
        writeText(collation());
        return packed(text.append('}').toString());
    }

    /** A type with strings that are not compared by their bytes: its JSON does not tell them apart. */
    private String collation() {
        java.util.Iterator found = types.keySet().iterator();
        while (found.hasNext()) {
            DataType type = (DataType) found.next();
            if (org.apache.spark.sql.util.SchemaUtils.hasNonUTF8BinaryCollation(type)) {
                return type.sql();
            }
        }
        return null;
    }

    /**
     * Deflated, in base 64: py4j writes what is longer than 8 KiB in several parts, and between two
     * of them waits 40 ms for an acknowledgement that the other side delays.
     */
    private static String packed(String text) {
        byte[] bytes = text.getBytes(java.nio.charset.StandardCharsets.US_ASCII);
        java.util.zip.Deflater deflater = new java.util.zip.Deflater(1);
        deflater.setInput(bytes);
        deflater.finish();
        java.io.ByteArrayOutputStream out = new java.io.ByteArrayOutputStream(bytes.length / 4);
        byte[] part = new byte[8192];
        while (!deflater.finished()) {
            out.write(part, 0, deflater.deflate(part));
        }
        deflater.end();
        return java.util.Base64.getEncoder().encodeToString(out.toByteArray());
    }

    /** The session's values of these settings. */
    public static String settings(Object session, Object keys) {
        org.apache.spark.sql.RuntimeConfig conf =
            ((org.apache.spark.sql.SparkSession) session).conf();
        StringBuilder text = new StringBuilder();
        String[] names = ((String) keys).split(",");
        for (int i = 0; i < names.length; i++) {
            text.append(i == 0 ? "" : "\u0001").append(conf.get(names[i]));
        }
        return text.toString();
    }

    /**
     * For every table of files in the plan, and below its subqueries, which they are: Spark compares
     * tables by their folders alone. Null where rows may come from anything else that can change.
     */
    public static String tables(Object plan) {
        StringBuilder text = new StringBuilder();
        java.util.Iterator nodes = nodes((LogicalPlan) plan).iterator();
        while (nodes.hasNext()) {
            LogicalPlan node = (LogicalPlan) nodes.next();
            String found = isRelation(node) ? files(node) : "";
            boolean isLeaf = ((TreeNode) node).children().length() == 0;
            if (isLeaf && found.length() == 0 && !isFixed(node)) {
                return null;
            }
            text.append(isLeaf ? found + " " : "");
        }
        return text.toString();
    }

    /** All nodes of a plan, and of those of its subqueries. */
    public static java.util.List nodes(LogicalPlan plan) {
        java.util.List found = new java.util.ArrayList();
        found.add(plan);
        for (int next = 0; next < found.size(); next++) {
            LogicalPlan node = (LogicalPlan) found.get(next);
            addAll(((TreeNode) node).children(), found);
            addAll(node.subqueries(), found);
        }
        return found;
    }

    private static void addAll(scala.collection.Seq items, java.util.List found) {
        for (int i = 0; i < items.length(); i++) {
            found.add(items.apply(i));
        }
    }

    /** Leaves whose rows are a part of the plan, and compared with it. */
    private static boolean isFixed(Object leaf) {
        String name = leaf.getClass().getSimpleName();
        return name.equals("OneRowRelation") || name.equals("Range") || name.equals("LocalRelation")
            || name.equals("LogicalRDD") || name.equals("CTERelationRef");
    }

    /** Whether Spark acts as soon as it sees the parsed plan, though it is no command by its class. */
    public static boolean actsAtOnce(Object plan) {
        String name = plan.getClass().getSimpleName();
        return name.startsWith("Compound") || name.equals("InsertIntoDir") || name.equals("Call")
            || name.equals("UnresolvedExecuteImmediate")
            || name.equals("PlanWithUnresolvedIdentifier");
    }

    /** Whether it is a table whose files are chosen by the values of some columns. */
    public static boolean isPartitioned(Object plan) {
        Object relation = isRelation(plan) ? call(plan, "relation") : null;
        Object columns = relation == null ? null : call(relation, "partitionSchema");
        return columns != null && ((StructType) columns).length() > 0;
    }

    /** [[type, value], ...], of types whose values have a text. */
    public static String constants(java.util.Collection literals) {
        TreeText tree = new TreeText();
        tree.text.append('[');
        java.util.Iterator found = literals.iterator();
        while (found.hasNext()) {
            Literal literal = (Literal) found.next();
            tree.text.append('[').append(literal.dataType().json()).append(',');
            tree.writeText(valueOf(literal));
            tree.text.append(found.hasNext() ? "]," : "]");
        }
        return tree.text.append(']').toString();
    }

    private void writeTree(TreeNode root) {
        text.append('[');
        writeNode(root, root);
        text.append(']');
    }

    private void writeNode(TreeNode node, TreeNode root) {
        Object state = held.get(node);
        if (state == null && nodes != null && node instanceof LogicalQueryStage) {
            LogicalPlan inner = ((LogicalQueryStage) node).logicalPlan();
            deterministic = deterministic && inner.deterministic();  // a stage does not tell
            writeNode(inner, node == root ? inner : root);
            return;
        }
        text.append(node == root ? "" : ",");
        if (state != null) {
            writeHeld((LogicalPlan) node, (int[]) state);
            return;
        }
        scala.collection.Seq children = node.children();
        text.append("{\"class\":");
        writeString(node.getClass().getName());
        text.append(",\"num-children\":").append(children.length());
        if (nodes != null) {
            text.append(",\"@\":").append(nodes.size());
            nodes.add(node);
        }
        if (node instanceof Literal) {
            writeLiteral((Literal) node);
        } else {
            writeFields(node, children);
        }
        if (node instanceof Expression) {
            writeFactsOfExpression((Expression) node);
        } else if (node instanceof LogicalPlan) {
            writeFactsOfPlan((LogicalPlan) node);
        }
        text.append('}');
        for (int i = 0; i < children.length(); i++) {
            writeNode((TreeNode) children.apply(i), root);
        }
    }

    private void writeHeld(LogicalPlan node, int[] state) {
        Integer number = Integer.valueOf(state[0]);
        if (!used.contains(number)) {
            used.add(number);
        }
        text.append("{\"class\":\"headway.Held\",\"num-children\":0,\"state\":").append(number);
        text.append(",\"places\":[");
        for (int i = 1; i < state.length; i++) {
            text.append(i == 1 ? "" : ",").append(state[i]);
        }
        text.append(']');
        writeName("output");
        writeSequence(node.output());
        writeFactsOfPlan(node);
        text.append('}');
    }

    /** The text of a nested constant; Spark has none of one that it has folded. */
    public static String constant(Object literal) {
        Literal folded = (Literal) literal;
        Object value = org.apache.spark.sql.catalyst.CatalystTypeConverters.convertToScala(
            folded.value(), folded.dataType());
        return Literal.create(value, folded.dataType()).sql();
    }

    private void writeLiteral(Literal literal) {
        text.append(",\"value\":");
        writeText(valueOf(literal));
        text.append(",\"dataType\":").append(literal.dataType().json());
    }

    private static String valueOf(Literal literal) {
        Object value = literal.value();
        String kind = literal.dataType().typeName();
        boolean moment = kind.equals("date") || kind.equals("timestamp");
        return value == null ? null : moment ? literal.toString() : value.toString();
    }

    private void writeFields(TreeNode node, scala.collection.Seq children) {
        scala.Product product = (scala.Product) node;
        for (int i = 0; i < product.productArity(); i++) {
            Object value = product.productElement(i);
            if (value instanceof LogicalPlan && node instanceof ScalarSubquery) {
                Object live = subqueries.get(Long.valueOf(((ScalarSubquery) node).exprId().id()));
                value = live == null ? value : live;
            }
            if (!(value instanceof scala.Option) || ((scala.Option) value).isDefined()) {
                writeName(product.productElementName(i));
                if (wanted != null && isRelation(node) && product.productElementName(i).equals("output")) {
                    writeWanted((scala.collection.Seq) value);
                } else {
                    writeField(value, children);
                }
            }
        }
        if (node instanceof LogicalRDD && ((LogicalRDD) node).rdd().name() != null
            && ((LogicalRDD) node).rdd().name().startsWith(STATE)) {
            writeName("state");
            writeString(((LogicalRDD) node).rdd().name().substring(STATE.length()));
        }
        Object identity = call(node, "exprId");
        if (identity != null && !hasField(product, "exprId")) {
            writeName("exprId");
            writeValue(identity);
        } else if (identity == null && hasMore(node)) {
            text.append(",\"more\":true");
        }
    }

    private void writeWanted(scala.collection.Seq attributes) {
        text.append('[');
        boolean first = true;
        for (int i = 0; i < attributes.length(); i++) {
            if (wanted.contains(Long.valueOf(id(attributes.apply(i))))) {
                text.append(first ? "" : ",");
                first = false;
                writeValue(attributes.apply(i));
            }
        }
        text.append(']');
    }

    /** Whether it was made with more than its fields tell. */
    private static boolean hasMore(TreeNode node) {
        Object more = call(node, "otherCopyArgs");
        return more != null && ((scala.collection.Seq) more).length() > 0;
    }

    private static boolean hasField(scala.Product product, String name) {
        for (int i = 0; i < product.productArity(); i++) {
            if (product.productElementName(i).equals(name)) {
                return true;
            }
        }
        return false;
    }

    private void writeField(Object value, scala.collection.Seq children) {
        if (value instanceof TreeNode && position(value, children) >= 0) {
            text.append(position(value, children));
        } else if (value instanceof scala.collection.Seq && allIn((scala.collection.Seq) value, children)) {
            scala.collection.Seq items = (scala.collection.Seq) value;
            text.append('[');
            for (int i = 0; i < items.length(); i++) {
                text.append(i == 0 ? "" : ",").append(position(items.apply(i), children));
            }
            text.append(']');
        } else {
            writeValue(value);
        }
    }

    private static int position(Object value, scala.collection.Seq children) {
        for (int i = 0; i < children.length(); i++) {
            if (children.apply(i) == value) {
                return i;
            }
        }
        return -1;
    }

    private static boolean allIn(scala.collection.Seq items, scala.collection.Seq children) {
        for (int i = 0; i < items.length(); i++) {
            if (position(items.apply(i), children) < 0) {
                return false;
            }
        }
        return true;
    }

    private void writeValue(Object value) {
        if (value instanceof Boolean || value instanceof Byte || value instanceof Short
            || value instanceof Integer || value instanceof Long) {
            text.append(value.toString());
        } else if (value instanceof String) {
            writeString((String) value);
        } else if (value instanceof DataType) {
            text.append(((DataType) value).json());
        } else if (value instanceof TreeNode) {
            writeTree((TreeNode) value);
        } else if (value instanceof scala.Some) {
            writeValue(((scala.Some) value).get());
        } else if (value instanceof scala.collection.Seq) {
            writeSequence((scala.collection.Seq) value);
        } else if (value == null || value instanceof scala.Option) {
            text.append("null");
        } else if (value.getClass().getName().endsWith("$")) {
            text.append("{\"object\":");
            writeString(value.getClass().getName());
            text.append('}');
        } else if (isWritten(value)) {
            scala.Product product = (scala.Product) value;
            text.append("{\"product-class\":");
            writeString(value.getClass().getName());
            for (int i = 0; i < product.productArity(); i++) {
                writeName(product.productElementName(i));
                writeValue(product.productElement(i));
            }
            text.append('}');
        } else {
            text.append("null");
        }
    }

    private static boolean isWritten(Object value) {
        return value instanceof org.apache.spark.sql.catalyst.expressions.ExprId
            || value instanceof org.apache.spark.sql.catalyst.plans.JoinType;
    }

    private void writeSequence(scala.collection.Seq items) {
        text.append('[');
        for (int i = 0; i < items.length(); i++) {
            text.append(i == 0 ? "" : ",");
            writeValue(items.apply(i));
        }
        text.append(']');
    }

    private void writeFactsOfExpression(Expression expression) {
        text.append(",\"#\":[").append(type(expression)).append(',');
        text.append(nullable(expression)).append(',');
        Object context = call(expression, "evalContext");
        Object mode = call(context == null ? expression : context, "evalMode");
        writeText(mode == null ? null : mode.toString());
        Object loss = context == null ? null : call(context, "allowDecimalPrecisionLoss");
        text.append(',');
        writeText(loss == null ? null : loss.toString());
        text.append(',');
        writeString(expression.prettyName());
        text.append(']');
    }

    private void writeFactsOfPlan(LogicalPlan plan) {
        text.append(",\"#\":[");
        text.append(changesColumns(plan) ? number(plan.schema()) : "null").append(",[");
        scala.collection.Seq attributes = plan.output();
        for (int i = 0; i < attributes.length(); i++) {
            text.append(i == 0 ? "" : ",");
            writeString(attributes.apply(i).toString());
        }
        text.append("],");
        writeText(isRelation(plan) ? files(plan) : "");
        text.append(']');
    }

    /** Others pass their inputs' columns on, and nobody asks for their schema. */
    private static boolean changesColumns(Object plan) {
        String name = plan.getClass().getSimpleName();
        return !(name.equals("Filter") || name.equals("Join") || name.equals("Sort")
            || name.equals("LogicalRelation") || name.endsWith("Limit"));
    }

    private static boolean isRelation(Object plan) {
        return plan.getClass().getSimpleName().equals("LogicalRelation");
    }

    /** Which files a table of files consists of: the table's object, and the state of its list. */
    private static String files(Object plan) {
        Object relation = call(plan, "relation");
        Object location = relation == null ? null : call(relation, "location");
        Object files = location == null ? null : call(location, "allFiles");
        return files == null ? "" : System.identityHashCode(relation) + ":" + files.hashCode();
    }

    /** Some expressions have none, such as those that only stand for a choice of columns. */
    private String type(Expression expression) {
        try {
            return number(expression.dataType());
        } catch (Throwable error) {
            return "null";
        }
    }

    private String number(DataType type) {
        Object known = types.get(type);
        if (known == null) {
            known = Integer.valueOf(types.size());
            types.put(type, known);
        }
        return known.toString();
    }

    private static String nullable(Expression expression) {
        try {
            return expression.nullable() ? "true" : "false";
        } catch (Throwable error) {
            return "null";
        }
    }

    private void writeName(String name) {
        text.append(',');
        writeString(name);
        text.append(':');
    }

    private void writeText(String value) {
        if (value == null) {
            text.append("null");
        } else {
            writeString(value);
        }
    }

    private void writeString(String value) {
        text.append('"');
        for (int i = 0; i < value.length(); i++) {
            char c = value.charAt(i);
            if (c == '"' || c == '\\') {
                text.append('\\').append(c);
            } else if (c < 32 || c > 126) {
                String digits = Integer.toHexString(c);
                text.append("\\u").append("0000".substring(digits.length())).append(digits);
            } else {
                text.append(c);
            }
        }
        text.append('"');
    }

    private static Object call(Object target, String method) {
        String key = target.getClass().getName() + "." + method;
        Object found = METHODS.get(key);
        if (found == null) {
            try {
                found = target.getClass().getMethod(method, new Class[0]);
            } catch (Exception error) {
                found = NONE;
            }
            METHODS.put(key, found);
        }
        if (found == NONE) {
            return null;
        }
        try {
            return ((java.lang.reflect.Method) found).invoke(target, new Object[0]);
        } catch (Exception error) {
            return null;
        }
    }
}
