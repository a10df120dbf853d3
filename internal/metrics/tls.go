package metrics

// Metrics of TLS, used with Registry.Func and Registry.Counter.
//
//nolint:gochecknoglobals // constant descriptions
var (
	// ListenerHandshakes counts TLS handshakes with clients. Its LabelResult is ResultOK or the
	// name of a credential.HandshakeFailure.
	ListenerHandshakes = Metric{"weft_listener_tls_handshakes_total", "TLS handshakes with clients of the listener, by result.",
		KindCounter, []string{LabelListener, LabelResult}}
	// ClusterHandshakes counts TLS handshakes with hosts, with the same values of LabelResult.
	ClusterHandshakes = Metric{"weft_cluster_tls_handshakes_total", "TLS handshakes with hosts of the cluster, by result.",
		KindCounter, []string{LabelCluster, LabelResult}}
	// CertificateReloads counts reloads of changed certificate files. Its LabelResult is
	// ResultApplied or ResultRejected.
	CertificateReloads = Metric{"weft_tls_certificate_reloads_total", "Reloads of certificate files, by result.",
		KindCounter, []string{LabelResult}}
)

// ResultOK is the LabelResult of a successful handshake, DNS lookup or request to the API of Dubbo
// services.
const ResultOK = "ok"
