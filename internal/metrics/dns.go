package metrics

// DNSLookups counts lookups of names of clusters. Its LabelResult is ResultOK or one
// of the others here.
//
//nolint:gochecknoglobals // a constant description
var DNSLookups = Metric{"weft_dns_lookups_total", "Lookups of the names of clusters' hosts, by what became of them.",
	KindCounter, []string{LabelResult}}

// Values of LabelResult of lookups, beside ResultOK.
const (
	ResultNoName  = "no_name" // there is no such name, or it has no address of the family
	ResultTimeout = "timeout"
	ResultFailed  = "failed" // a server refused or failed
)
