// Package chainmatch owns which of a listener's filter chains a connection takes. It is
// pure: a Matcher is compiled once from configuration, never changes, and may be used
// by any number of goroutines.
//
// # Precedence
//
// The criteria are looked at in this order, and each time only the chains stay in the
// race that ask for the most specific of what the connection meets:
//
//  1. destination port
//  2. destination address, the longest range
//  3. server name: the very name, then the longest "*.suffix"
//  4. transport protocol
//  5. application protocols, in the caller's order
//  6. address of the socket's other end, the longest range
//  7. source type: where the caller is, before any
//  8. source address, the longest range
//  9. source port
//
// Chains that do not ask come after all that do. There is no way back: a chain that
// wins at one criterion and then fails at a later one does not give way to a chain that
// was less specific at the earlier one. The connection then takes the default chain, or
// none.
package chainmatch
