package config

// UnderscoreAction says how a listener treats requests with a header whose name contains an
// underscore. Applications that expose headers as variables, as CGI does, read X_User as X-User. A
// client could therefore send a header that the proxy would remove under its name with hyphens.
type UnderscoreAction uint8

// The actions.
const (
	AllowUnderscores  UnderscoreAction = iota // forward the headers
	RejectUnderscores                         // reject the requests and close their HTTP/1.1 connections; reset their HTTP/2 streams
	DropUnderscores                           // remove the headers
)
