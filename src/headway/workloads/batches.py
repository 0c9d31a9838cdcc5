"""Batches of queries over TPC-DS that have much, little, or an ordinary amount in common.

All of them read store_sales. The templates are parts of TPC-DS queries, and some of our own with
four and five joins; constants are drawn anew for every query, from a seed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

QUERIES_PER_BATCH = 100
Template = Callable[[Random], str]


def low_share(seed: int = 1, count: int = QUERIES_PER_BATCH) -> dict[str, str]:
    """store_sales joined with two of its dimensions, which differ from query to query."""
    random = Random(seed)
    return _numbered("low", [_three_way(random) for _ in range(count)])


def high_share(seed: int = 1, count: int = QUERIES_PER_BATCH) -> dict[str, str]:
    """One template with four joins, under other conditions every time."""
    random = Random(seed)
    return _numbered("high", [_q7(random) for _ in range(count)])


def regular_share(seed: int = 1, count: int = QUERIES_PER_BATCH) -> dict[str, str]:
    """All templates, with two to five joins."""
    random = Random(seed)
    return _numbered("regular", [random.choice(TEMPLATES)(random) for _ in range(count)])


def _numbered(kind: str, texts: list[str]) -> dict[str, str]:
    return {f"{kind}_{number:03d}": text for number, text in enumerate(texts, 1)}


def _year(random: Random) -> int:
    return random.randint(1998, 2002)


def _range(random: Random, low: int, high: int, width: int) -> tuple[int, int]:
    first = random.randint(low, high - width)
    return first, first + width


# Dimensions for joins of three tables: the key, a group, and a condition with numbers in it.
_DIMENSIONS: dict[str, tuple[str, str, Callable[[Random], str]]] = {
    "date_dim": (
        "ss_sold_date_sk = d_date_sk",
        "d_moy",
        lambda r: f"d_year = {_year(r)} AND d_moy <= {r.randint(3, 12)}",
    ),
    "item": (
        "ss_item_sk = i_item_sk",
        "i_category_id",
        lambda r: f"i_manager_id <= {r.randint(10, 60)}",
    ),
    "store": (
        "ss_store_sk = s_store_sk",
        "s_store_id",
        lambda r: f"s_number_employees >= {r.randint(200, 260)}",
    ),
    "household_demographics": (
        "ss_hdemo_sk = hd_demo_sk",
        "hd_dep_count",
        lambda r: f"hd_vehicle_count <= {r.randint(0, 3)}",
    ),
    "customer_demographics": (
        "ss_cdemo_sk = cd_demo_sk",
        "cd_dep_count",
        lambda r: f"cd_purchase_estimate <= {500 * r.randint(4, 16)}",
    ),
    "time_dim": (
        "ss_sold_time_sk = t_time_sk",
        "t_hour",
        lambda r: "t_hour BETWEEN {} AND {}".format(*_range(r, 8, 20, 5)),
    ),
    "promotion": (
        "ss_promo_sk = p_promo_sk",
        "p_response_target",
        lambda r: f"p_promo_sk <= {r.randint(80, 300)}",
    ),
    "customer": (
        "ss_customer_sk = c_customer_sk",
        "c_birth_month",
        lambda r: f"c_birth_year >= {r.randint(1930, 1980)}",
    ),
    "customer_address": (
        "ss_addr_sk = ca_address_sk",
        "ca_gmt_offset",
        lambda r: f"ca_gmt_offset >= {r.randint(-8, -6)}",
    ),
}


def _three_way(random: Random) -> str:
    first, second = random.sample(sorted(_DIMENSIONS), 2)
    (key_1, group_1, where_1), (key_2, group_2, where_2) = _DIMENSIONS[first], _DIMENSIONS[second]
    low, high = _range(random, 1, 100, random.randint(20, 60))
    return f"""
SELECT {group_1}, {group_2}, count(*) AS sales, sum(ss_net_paid) AS paid
FROM store_sales, {first}, {second}
WHERE {key_1} AND {key_2} AND {where_1(random)} AND {where_2(random)}
  AND ss_quantity BETWEEN {low} AND {high}
GROUP BY {group_1}, {group_2}
ORDER BY {group_1}, {group_2}"""


def _q1(random: Random) -> str:
    low, high = _range(random, 1, 100, 30)
    return f"""
SELECT ss_customer_sk, ss_store_sk, sum(ss_net_paid) AS total
FROM store_sales, date_dim, store
WHERE ss_sold_date_sk = d_date_sk AND ss_store_sk = s_store_sk AND d_year = {_year(random)}
  AND s_number_employees >= {random.randint(200, 260)} AND ss_quantity BETWEEN {low} AND {high}
GROUP BY ss_customer_sk, ss_store_sk
HAVING sum(ss_net_paid) > {random.randint(5_000, 15_000)}
ORDER BY total DESC, ss_customer_sk, ss_store_sk LIMIT 100"""


def _q7(random: Random) -> str:
    low, high = _range(random, 1, 100, random.randint(30, 80))
    return f"""
SELECT i_item_id, avg(ss_quantity) AS agg1, avg(ss_list_price) AS agg2, avg(ss_coupon_amt) AS agg3,
  avg(ss_sales_price) AS agg4
FROM store_sales, customer_demographics, date_dim, item, promotion
WHERE ss_sold_date_sk = d_date_sk AND ss_item_sk = i_item_sk AND ss_cdemo_sk = cd_demo_sk
  AND ss_promo_sk = p_promo_sk AND cd_dep_count <= {random.randint(0, 4)}
  AND cd_purchase_estimate >= {500 * random.randint(6, 18)}
  AND p_promo_sk >= {random.randint(1, 60)}
  AND d_year = {_year(random)} AND ss_quantity BETWEEN {low} AND {high}
GROUP BY i_item_id ORDER BY i_item_id LIMIT 100"""


def _q38(random: Random) -> str:
    month = random.randint(1176, 1220)
    return f"""
SELECT count(*) AS customers FROM (
  SELECT DISTINCT c_last_name, c_first_name, d_date
  FROM store_sales, date_dim, customer
  WHERE ss_sold_date_sk = d_date_sk AND ss_customer_sk = c_customer_sk
    AND d_month_seq BETWEEN {month} AND {month + random.randint(2, 11)}) AS sold"""


def _q42(random: Random) -> str:
    return f"""
SELECT d_year, i_category_id, i_category, sum(ss_ext_sales_price) AS price
FROM date_dim, store_sales, item
WHERE d_date_sk = ss_sold_date_sk AND ss_item_sk = i_item_sk
  AND i_manager_id = {random.randint(1, 100)} AND d_moy = {random.randint(1, 12)}
  AND d_year = {_year(random)}
GROUP BY d_year, i_category_id, i_category
ORDER BY price DESC, d_year, i_category_id, i_category LIMIT 100"""


def _q43(random: Random) -> str:
    days = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
    sums = ",\n  ".join(
        f"sum(CASE WHEN d_day_name = '{day}' THEN ss_sales_price END) AS {day.lower()}_sales"
        for day in days
    )
    return f"""
SELECT s_store_name, s_store_id, {sums}
FROM date_dim, store_sales, store
WHERE d_date_sk = ss_sold_date_sk AND s_store_sk = ss_store_sk AND s_gmt_offset = -5
  AND d_year = {_year(random)} AND ss_quantity <= {random.randint(20, 100)}
GROUP BY s_store_name, s_store_id
ORDER BY s_store_name, s_store_id LIMIT 100"""


def _q55(random: Random) -> str:
    return f"""
SELECT i_brand_id, i_brand, sum(ss_ext_sales_price) AS ext_price
FROM date_dim, store_sales, item
WHERE d_date_sk = ss_sold_date_sk AND ss_item_sk = i_item_sk
  AND i_manager_id = {random.randint(1, 100)} AND d_moy = {random.randint(1, 12)}
  AND d_year = {_year(random)}
GROUP BY i_brand_id, i_brand
ORDER BY ext_price DESC, i_brand_id LIMIT 100"""


def _q73(random: Random) -> str:
    day = random.randint(1, 20)
    return f"""
SELECT cnt, count(*) AS tickets FROM (
  SELECT ss_ticket_number, ss_customer_sk, count(*) AS cnt
  FROM store_sales, date_dim, store, household_demographics
  WHERE ss_sold_date_sk = d_date_sk AND ss_store_sk = s_store_sk AND ss_hdemo_sk = hd_demo_sk
    AND d_dom BETWEEN {day} AND {day + 2} AND hd_vehicle_count > {random.randint(0, 2)}
    AND hd_dep_count <= {random.randint(2, 8)} AND d_year = {_year(random)}
  GROUP BY ss_ticket_number, ss_customer_sk) AS dj
WHERE cnt BETWEEN 1 AND 5
GROUP BY cnt ORDER BY cnt"""


def _q79(random: Random) -> str:
    year = _year(random)
    return f"""
SELECT ss_ticket_number, ss_customer_sk, s_city, sum(ss_coupon_amt) AS amt,
  sum(ss_net_profit) AS profit
FROM store_sales, date_dim, store, household_demographics
WHERE ss_sold_date_sk = d_date_sk AND ss_store_sk = s_store_sk AND ss_hdemo_sk = hd_demo_sk
  AND (hd_dep_count = {random.randint(0, 9)} OR hd_vehicle_count > {random.randint(2, 3)})
  AND d_dow = {random.randint(0, 6)} AND d_year IN ({year}, {year + 1})
  AND s_number_employees BETWEEN 200 AND {random.randint(260, 300)}
GROUP BY ss_ticket_number, ss_customer_sk, ss_addr_sk, s_city
ORDER BY profit, ss_ticket_number, ss_customer_sk, s_city LIMIT 100"""


def _q87(random: Random) -> str:
    month = random.randint(1176, 1220)
    return f"""
SELECT count(*) AS names FROM (
  SELECT DISTINCT c_last_name, c_first_name, d_date
  FROM store_sales, date_dim, customer
  WHERE ss_sold_date_sk = d_date_sk AND ss_customer_sk = c_customer_sk
    AND d_month_seq BETWEEN {month} AND {month + 3} AND ss_quantity > {random.randint(1, 80)}
) AS cool"""


def _q96(random: Random) -> str:
    return f"""
SELECT count(*) AS sales
FROM store_sales, household_demographics, time_dim, store
WHERE ss_sold_time_sk = t_time_sk AND ss_hdemo_sk = hd_demo_sk AND ss_store_sk = s_store_sk
  AND t_hour = {random.randint(8, 20)} AND t_minute >= {random.choice((0, 15, 30, 45))}
  AND hd_dep_count = {random.randint(0, 9)}
  AND s_number_employees >= {random.randint(200, 260)}"""


def _own(tables: tuple[str, ...], group: str, value: str) -> Template:
    """A template over store_sales and these dimensions."""

    def text(random: Random) -> str:
        conditions = [condition for table in tables for condition in _OWN_TABLES[table](random)]
        low, high = _range(random, 1, 100, random.randint(20, 60))
        where = "\n  AND ".join([*conditions, f"ss_quantity BETWEEN {low} AND {high}"])
        return f"""
SELECT {group}, count(*) AS sales, sum({value}) AS total
FROM store_sales, {", ".join(tables)}
WHERE {where}
GROUP BY {group} ORDER BY {group} LIMIT 100"""

    return text


_OWN_TABLES: dict[str, Callable[[Random], tuple[str, ...]]] = {
    "date_dim": lambda r: ("ss_sold_date_sk = d_date_sk", f"d_year = {_year(r)}"),
    "item": lambda r: ("ss_item_sk = i_item_sk", f"i_manager_id <= {r.randint(20, 80)}"),
    "store": lambda r: ("ss_store_sk = s_store_sk", f"s_number_employees >= {r.randint(200, 250)}"),
    "customer": lambda r: (
        "ss_customer_sk = c_customer_sk",
        f"c_birth_year >= {r.randint(1930, 1970)}",
    ),
    "household_demographics": lambda r: (
        "ss_hdemo_sk = hd_demo_sk",
        f"hd_vehicle_count <= {r.randint(1, 4)}",
    ),
    "income_band": lambda r: (
        "hd_income_band_sk = ib_income_band_sk",
        f"ib_upper_bound <= {10_000 * r.randint(8, 20)}",
    ),
}

_HD = "household_demographics"
TEMPLATES: tuple[Template, ...] = (
    _q1,
    _q7,
    _q38,
    _q42,
    _q43,
    _q55,
    _q73,
    _q79,
    _q87,
    _q96,
    _own(("store", "item", "date_dim", "customer"), "i_category_id", "ss_net_paid"),
    _own(("store", "date_dim", _HD, "income_band"), "ib_upper_bound", "ss_net_profit"),
    _own(("item", "date_dim", _HD, "income_band"), "i_category_id", "ss_sales_price"),
    _own(("item", "date_dim", "customer", _HD), "c_birth_month", "ss_net_paid"),
    _own(("store", "item", "date_dim", _HD, "income_band"), "s_store_id", "ss_net_paid"),
    _own(("store", "item", "date_dim", "customer", _HD), "d_moy", "ss_ext_sales_price"),
)
