"""Operations of Ibis: those on a single row, those on several rows, and those that are refused.

An operation in no list is refused as unknown: Ibis may have operations without a check here.
A test compares the lists with all classes of the installed Ibis.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Each computes a row's value from values of that row.
BY_ROW = _names(
    """
    Abs Acos Add Alias And Argument Array ArrayAll ArrayAny ArrayConcat ArrayContains ArrayDistinct ArrayFilter
    ArrayFlatten ArrayIndex ArrayIntersect ArrayLength ArrayMap ArrayMax ArrayMean ArrayMin ArrayMode ArrayPosition
    ArrayRemove ArrayRepeat ArraySlice ArraySort ArrayStringJoin ArraySum ArrayUnion ArrayZip Asin Atan Atan2
    BaseConvert Between BetweenTime BitwiseAnd BitwiseLeftShift BitwiseNot BitwiseOr BitwiseRightShift BitwiseXor
    Bucket Capitalize Cast Ceil Clip Coalesce Cos Cot Date DateAdd DateDelta DateDiff DateFromYMD DateNow DateSub
    DateTruncate DayOfWeekIndex DayOfWeekName Degrees Divide E EndsWith Equals Exp ExtractAuthority ExtractDay
    ExtractDayOfYear ExtractEpochSeconds ExtractFile ExtractFragment ExtractHost ExtractHour ExtractIsoYear
    ExtractMicrosecond ExtractMillisecond ExtractMinute ExtractMonth ExtractPath ExtractProtocol ExtractQuarter
    ExtractQuery ExtractSecond ExtractUserInfo ExtractWeekOfYear ExtractYear Field FindInSet Floor FloorDivide
    GeoArea GeoAsBinary GeoAsEWKB GeoAsEWKT GeoAsText GeoAzimuth GeoBuffer GeoCentroid GeoContains
    GeoContainsProperly GeoConvert GeoCoveredBy GeoCovers GeoCrosses GeoDFullyWithin GeoDWithin GeoDifference
    GeoDisjoint GeoDistance GeoEndPoint GeoEnvelope GeoEquals GeoFlipCoordinates GeoGeometryN GeoGeometryType
    GeoIntersection GeoIntersects GeoIsValid GeoLength GeoLineLocatePoint GeoLineMerge GeoLineSubstring
    GeoMaxDistance GeoNPoints GeoNRings GeoOrderingEquals GeoOverlaps GeoPerimeter GeoPoint GeoPointN GeoSRID
    GeoSetSRID GeoSimplify GeoStartPoint GeoTouches GeoTransform GeoUnion GeoWithin GeoX GeoXMax GeoXMin GeoY
    GeoYMax GeoYMin Greater GreaterEqual Greatest Hash HashBytes HexDigest IdenticalTo IfElse InValues IntegerRange
    IntervalAdd IntervalFloorDivide IntervalFromInteger IntervalMultiply IntervalSubtract IsInf IsNan IsNull
    JSONGetItem LPad LStrip Least Less LessEqual Levenshtein Literal Ln Log Log10 Log2 Lowercase Map MapContains
    MapGet MapKeys MapLength MapMerge MapValues Modulus Multiply Negate Not NotEquals NotNull NullIf Or Pi Power
    RPad RStrip Radians Range RegexExtract RegexReplace RegexSearch RegexSplit Repeat Reverse Round ScalarParameter
    SearchedCase Sign SimpleCase Sin Sqrt StartsWith StrRight Strftime StringAscii StringConcat StringContains
    StringFind StringJoin StringLength StringReplace StringSQLILike StringSQLLike StringSlice StringSplit
    StringToDate StringToTime StringToTimestamp Strip StructColumn StructField Substring Subtract Tan Time TimeAdd
    TimeDelta TimeDiff TimeFromHMS TimeSub TimeTruncate TimestampAdd TimestampBucket TimestampDelta TimestampDiff
    TimestampFromUNIX TimestampFromYMDHMS TimestampNow TimestampRange TimestampSub TimestampTruncate ToJSONArray
    ToJSONMap Translate TryCast TypeOf UnwrapJSONBoolean UnwrapJSONFloat64 UnwrapJSONInt64 UnwrapJSONString
    Uppercase Xor
    """
)
# One row may become several.
MULTIPLYING = frozenset({"Unnest"})
# One value for several rows: for all, a group or a window.
REDUCTIONS = _names(
    """
    All Any ApproxCountDistinct ApproxMedian ApproxMultiQuantile ApproxQuantile Arbitrary ArgMax ArgMin ArrayCollect
    BitAnd BitOr BitXor Correlation Count CountDistinct CountDistinctStar CountStar Covariance First GeoUnaryUnion
    GroupConcat Kurtosis Last Max Mean Median Min Mode MultiQuantile Quantile StandardDev Sum Variance
    """
)
# Only in windows.
ANALYTIC = _names(
    """
    CumeDist DenseRank Lag Lead MinRank NTile NthValue PercentRank RowNumber
    """
)
# Parts of windows and orders.
WINDOWS = frozenset({"SortKey", "WindowBoundary", "WindowFunction"})
# Values that are looked up in another relation.
SUBQUERIES = frozenset({"ExistsSubquery", "InSubquery", "ScalarSubquery"})
RANDOM = frozenset({"RandomScalar", "RandomUUID"})
# They depend on the place of a row.
PLACES = frozenset({"RowID"})
# Functions by name: the connection shows whether they are built in.
BY_NAME = frozenset({"AggUDF", "ScalarUDF"})
# Python code, in an interface that Ibis no longer offers.
PYTHON = frozenset({"AnalyticVectorizedUDF", "ElementWiseVectorizedUDF", "ReductionVectorizedUDF"})

# Relations that are only read.
TABLES = frozenset({"DatabaseTable", "DummyTable", "InMemoryTable", "SQLQueryResult", "SQLStringView", "UnboundTable"})
# They handle rows one by one.
ON_ROWS = _names(
    """
    AliasedRelation DropColumns DropNull FillNull Filter JoinReference Project SelfReference Sort TableUnnest
    """
)
SETS = frozenset({"Difference", "Intersection", "Union"})
# Each has its own rule.
OTHERS = frozenset({"Aggregate", "Distinct", "JoinChain", "JoinLink"})
# They choose rows by their places.
PICKS = frozenset({"Limit", "Sample"})
# Refused as unknown.
UNKNOWN = frozenset({"FuzzySearch", "WindowAggregate"})

# Classes without nodes.
BASES = _names(
    """
    Analytic ArrayAgg Binary BitwiseBinary Comparison Constant ExpandingMathUnary ExtractDateField
    ExtractTemporalField ExtractTimeField Filterable GeoSpatialBinOp GeoSpatialUnOp Impure IntervalBinary Logarithm
    LogicalBinary MathUnary Node NumericBinary Orderable PhysicalTable QuantileBase RankBase Reduction Reference
    Relation Set ShiftBase Simple StringUnary Subquery TemporalDelta TrigonometricBinary TrigonometricUnary Unary
    Value VarianceBase VectorizedUDF
    """
)

VALUES = BY_ROW | MULTIPLYING | REDUCTIONS | ANALYTIC | WINDOWS | SUBQUERIES | RANDOM | PLACES | BY_NAME | PYTHON


def is_of_ibis(node: object) -> bool:
    """Return whether a node's class is one of Ibis' own, not a derived class."""
    return type(node).__module__.startswith("ibis.expr.operations.")
