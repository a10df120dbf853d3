package metrics

// DNSLookups counts DNS lookups of cluster hosts. Its LabelResult is ResultOK, ResultNotFound,
// ResultTimeout or ResultFailed.
//
//nolint:gochecknoglobals // a constant description
var DNSLookups = Metric{"weft_dns_lookups_total", "DNS lookups of host names of clusters, by result.",
	KindCounter, []string{LabelResult}}

// Values of LabelResult of lookups, in addition to ResultOK.
const (
	ResultNotFound = "no_name" // the name does not exist, or has no address of the family
	ResultTimeout  = "timeout"
	ResultFailed   = "failed" // a server reported an error, or the query failed
)
