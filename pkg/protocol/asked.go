package protocol

// OriginalPath returns Request.Path as the caller sent it, with its query. Who judges
// callers goes by it; routes may have rewritten the path since.
func (x *Exchange) OriginalPath() string {
	if x.Record.OriginalPath != "" {
		return x.Record.OriginalPath
	}
	return x.Request.Path
}

// OriginalAuthority returns Request.Authority as the caller sent it.
func (x *Exchange) OriginalAuthority() string {
	if x.Record.OriginalAuthority != "" {
		return x.Record.OriginalAuthority
	}
	return x.Request.Authority
}

// RewriteAuthority makes authority the one that the request is for from here on.
func (x *Exchange) RewriteAuthority(authority string) {
	if x.Record.OriginalAuthority == "" {
		x.Record.OriginalAuthority = x.Request.Authority
	}
	x.Request.Authority = authority
}
