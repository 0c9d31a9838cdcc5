package headway;

import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.ReusedSubqueryExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.BroadcastQueryStageExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;

/**
 * The broadcast tables of queries that are over. Spark keeps each, a megabyte or more in the driver
 * and in every executor, as long as anybody knows the query that it was made for; and what Python
 * has known, it forgets when its collector comes to it.
 */
public final class LettingGo {

    /** For py4j, which calls methods of objects with less ado than those of classes. */
    public LettingGo() {
    }

    /** Removes them everywhere; the query cannot be run again after this. */
    public static void broadcastTables(Object execution) {
        java.util.Set seen =
            java.util.Collections.newSetFromMap(new java.util.IdentityHashMap());
        java.util.Set tables =
            java.util.Collections.newSetFromMap(new java.util.IdentityHashMap());
        find(((QueryExecution) execution).executedPlan(), seen, tables);
        java.util.Iterator each = tables.iterator();
        while (each.hasNext()) {
            Broadcast table = (Broadcast) each.next();
            if (table.isValid()) {
                table.destroy();
            }
        }
    }

    private static void find(SparkPlan node, java.util.Set seen, java.util.Set tables) {
        if (!seen.add(node)) {
            return;
        }
        if (node instanceof BroadcastQueryStageExec && ((QueryStageExec) node).isMaterialized()) {
            tables.add(((scala.Option) ((QueryStageExec) node).resultOption().get()).get());
        }
        if (node instanceof QueryStageExec) {
            find(((QueryStageExec) node).plan(), seen, tables);
        } else if (node instanceof AdaptiveSparkPlanExec) {
            find(((AdaptiveSparkPlanExec) node).executedPlan(), seen, tables);
        } else if (node instanceof ReusedExchangeExec) {
            find((SparkPlan) ((ReusedExchangeExec) node).child(), seen, tables);
        } else if (node instanceof ReusedSubqueryExec) {
            find(((ReusedSubqueryExec) node).child(), seen, tables);
        }
        findAll(((TreeNode) node).children(), seen, tables);
        findAll(node.subqueries(), seen, tables);
    }

    private static void findAll(
        scala.collection.Seq nodes, java.util.Set seen, java.util.Set tables) {
        for (int i = 0; i < nodes.length(); i++) {
            find((SparkPlan) nodes.apply(i), seen, tables);
        }
    }
}
