package protocol

// EffectiveGRPCStatus returns the gRPC status of a response: its grpc-status or, without one, the
// status that the gRPC specification assigns to the HTTP status. It returns NoCode if there is no
// response.
func EffectiveGRPCStatus(r *Response) int {
	if code := GRPCStatus(r); code != NoCode || r.Status == 0 {
		return code
	}
	const (
		unknown          = 2
		permissionDenied = 7
		unimplemented    = 12
		internal         = 13
		unauthenticated  = 16
	)
	switch r.Status {
	case 400:
		return internal
	case 401:
		return unauthenticated
	case 403:
		return permissionDenied
	case 404:
		return unimplemented
	case 429, 502, 503, 504:
		return GRPCUnavailable
	default:
		return unknown
	}
}
