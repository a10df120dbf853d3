package metrics

// Metrics of TLS, used with Registry.Func and Registry.Counter.
//
//nolint:gochecknoglobals // constant descriptions
var (
	// ListenerHandshakes counts handshakes with callers. Its LabelResult is ResultOK
	// or a credential.HandshakeFailure's name.
	ListenerHandshakes = Metric{"weft_listener_tls_handshakes_total", "TLS handshakes with the listener's callers, by what became of them.",
		KindCounter, []string{LabelListener, LabelResult}}
	// ClusterHandshakes counts the same with hosts.
	ClusterHandshakes = Metric{"weft_cluster_tls_handshakes_total", "TLS handshakes with hosts of the cluster, by what became of them.",
		KindCounter, []string{LabelCluster, LabelResult}}
	// CertificateReloads counts files of certificates that changed. Its LabelResult is
	// ResultApplied or ResultRejected.
	CertificateReloads = Metric{"weft_tls_certificate_reloads_total", "Changes of certificate files, by whether they could be used.",
		KindCounter, []string{LabelResult}}
)

// ResultOK is the LabelResult of a handshake that succeeded.
const ResultOK = "ok"
