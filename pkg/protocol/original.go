package protocol

// OriginalPath returns the path and query that Request.Path had before a route rewrote it. Code
// that authorizes clients uses it.
func (x *Exchange) OriginalPath() string {
	if x.Record.OriginalPath != "" {
		return x.Record.OriginalPath
	}
	return x.Request.Path
}

// OriginalAuthority returns Request.Authority as the client sent it.
func (x *Exchange) OriginalAuthority() string {
	if x.Record.OriginalAuthority != "" {
		return x.Record.OriginalAuthority
	}
	return x.Request.Authority
}

// RewriteAuthority sets Request.Authority and keeps the original authority in the record.
func (x *Exchange) RewriteAuthority(authority string) {
	if x.Record.OriginalAuthority == "" {
		x.Record.OriginalAuthority = x.Request.Authority
	}
	x.Request.Authority = authority
}
