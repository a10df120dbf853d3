package variable

import "slices"

// operators returns the table of operators. Operators whose value is that of a variable refer to
// it. Envoy has other operators, for facts that Weft does not record.
func operators() []operator {
	return slices.Concat(timeOperators(), requestOperators(), responseOperators(), upstreamOperators(), connectionOperators(), tlsOperators(), otherOperators())
}
