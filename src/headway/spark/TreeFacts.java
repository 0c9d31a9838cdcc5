package headway;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;

/**
 * What Catalyst's JSON of a plan leaves out of its expressions, for all of them at once.
 *
 * Compiled by Janino, which Spark brings along; so no syntax beyond what that reads.
 */
public final class TreeFacts {

    private static final String FIELD = "\u0001";
    private static final String RECORD = "\u0002";
    private static final String LIST = "\u0003";
    private static final String NODE = "\u0004";

    private static final Object NONE = new Object();
    private static final java.util.Map METHODS = new java.util.concurrent.ConcurrentHashMap();

    private TreeFacts() {
    }

    /**
     * For every node of the plan, parents first: its schema as JSON, its attributes, the files of
     * a table, and its fields that hold expressions. For every expression of such a field, parents first: its type
     * as JSON, whether it may be null, its evaluation mode, whether it may lose decimal precision,
     * and its name as a function.
     */
    public static String of(Object root) {
        StringBuilder text = new StringBuilder();
        writePlan((TreeNode) root, text);
        return text.toString();
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
     * For every table of files in the plan which they are: Spark compares tables by their folders
     * alone. Null where a table has no files.
     */
    public static String tables(Object plan) {
        scala.collection.Seq leaves = ((TreeNode) plan).collectLeaves();
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < leaves.length(); i++) {
            TreeNode leaf = (TreeNode) leaves.apply(i);
            if (leaf.getClass().getSimpleName().equals("LogicalRelation")) {
                String found = files(leaf);
                if (found.length() == 0) {
                    return null;
                }
                text.append(found).append(FIELD);
            }
        }
        return text.toString();
    }

    private static void writePlan(TreeNode plan, StringBuilder text) {
        LogicalPlan logical = (LogicalPlan) plan;
        text.append(changesColumns(plan) ? logical.schema().json() : "").append(FIELD);
        text.append(logical.output().mkString("\u0005")).append(FIELD);
        text.append(files(plan)).append(LIST);
        scala.Product product = (scala.Product) plan;
        for (int i = 0; i < product.productArity(); i++) {
            Object value = unwrapped(product.productElement(i));
            if (value instanceof Expression) {
                text.append(product.productElementName(i)).append(FIELD);
                writeExpression((Expression) value, text);
                text.append(LIST);
            } else if (value instanceof scala.collection.Seq) {
                scala.collection.Seq items = (scala.collection.Seq) value;
                for (int j = 0; j < items.length(); j++) {
                    Object item = items.apply(j);
                    if (item instanceof Expression) {
                        text.append(product.productElementName(i)).append('/').append(j);
                        text.append(FIELD);
                        writeExpression((Expression) item, text);
                        text.append(LIST);
                    }
                }
            }
        }
        text.append(NODE);
        scala.collection.Seq children = plan.children();
        for (int i = 0; i < children.length(); i++) {
            writePlan((TreeNode) children.apply(i), text);
        }
    }

    private static void writeExpression(Expression expression, StringBuilder text) {
        text.append(type(expression)).append(FIELD);
        text.append(nullable(expression)).append(FIELD);
        Object context = call(expression, "evalContext");
        Object mode = call(context == null ? expression : context, "evalMode");
        text.append(mode == null ? "" : mode.toString()).append(FIELD);
        Object loss = context == null ? null : call(context, "allowDecimalPrecisionLoss");
        text.append(loss == null ? "" : loss.toString()).append(FIELD);
        text.append(expression.prettyName()).append(RECORD);
        scala.collection.Seq children = ((TreeNode) expression).children();
        for (int i = 0; i < children.length(); i++) {
            writeExpression((Expression) children.apply(i), text);
        }
    }

    /** Others pass their inputs' columns on, and nobody asks for their schema. */
    private static boolean changesColumns(TreeNode plan) {
        String name = plan.getClass().getSimpleName();
        return !(name.equals("Filter") || name.equals("Join") || name.equals("Sort")
            || name.equals("LogicalRelation") || name.endsWith("Limit"));
    }

    /** Which files a table of files consists of: the table's object, and the state of its list. */
    private static String files(TreeNode plan) {
        Object relation = call(plan, "relation");
        Object location = relation == null ? null : call(relation, "location");
        Object files = location == null ? null : call(location, "allFiles");
        return files == null ? "" : System.identityHashCode(relation) + ":" + files.hashCode();
    }

    /** Some expressions have none, such as those that only stand for a choice of columns. */
    private static String type(Expression expression) {
        try {
            return expression.dataType().json();
        } catch (Throwable error) {
            return "";
        }
    }

    private static String nullable(Expression expression) {
        try {
            return expression.nullable() ? "true" : "false";
        } catch (Throwable error) {
            return "";
        }
    }

    private static Object unwrapped(Object value) {
        return value instanceof scala.Some ? ((scala.Some) value).get() : value;
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
