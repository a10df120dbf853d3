// Package chainmatch chooses the filter chain of a listener for a connection. The package is pure:
// a Matcher is compiled once from configuration, never changes, and is safe for concurrent use.
//
// # Precedence
//
// The Matcher evaluates the criteria in this order. At each criterion it keeps only the chains with
// the most specific value that the connection matches:
//
//  1. destination port
//  2. destination address, the longest range
//  3. server name: the exact name, then the longest "*.suffix"
//  4. transport protocol
//  5. application protocols, in the client's order
//  6. direct remote address, the longest range
//  7. source type: local or external
//  8. source address, the longest range
//  9. source port
//
// Chains without the criterion come after all chains with it. The Matcher does not backtrack. If a
// chain wins at one criterion and fails at a later criterion, the Matcher tries no chain that was
// less specific at the earlier criterion. The connection then takes the default chain, or none.
package chainmatch
