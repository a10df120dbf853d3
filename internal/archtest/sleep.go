package archtest

import (
	"go/ast"
	"go/token"
	"go/types"
)

// checkSleep reports time.Sleep and, in tests, receives from timers outside a select with several
// cases: they wait for real time to pass. A test may sleep where time is fake: inside a function
// that it passes to synctest.Test, or to a function of its package that calls synctest.Test.
// Programs below test/ may sleep.
func checkSleep(p *pkg, report reporter) {
	p.bubbles = p.findBubbles()
	for _, f := range p.files {
		if isWithin(p.dir, "test") && !f.test {
			continue
		}
		for _, decl := range f.syntax.Decls {
			function, ok := decl.(*ast.FuncDecl)
			if !ok {
				p.reportSleep(f, decl, report)
				continue
			}
			reason, hasMarker := marker(function.Doc, "clock")
			switch {
			case hasMarker && reason == "":
				report(function.Pos(), "//arch:clock without a reason", "state which test calls it inside a synctest bubble, or why real time must pass")
			case hasMarker && f.test:
			default:
				p.reportSleep(f, decl, report)
			}
		}
	}
}

func (p *pkg) reportSleep(f *file, root ast.Node, report reporter) {
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			return !p.startsBubble(n)
		case *ast.SelectStmt:
			if f.test && len(n.Body.List) > 1 {
				p.reportSleepInCases(f, n, report)
				return false
			}
		case *ast.UnaryExpr:
			if call := p.receivedTimer(n); f.test && call != "" {
				report(n.Pos(), "a test waits for "+call, sleepFix)
			}
		case *ast.SelectorExpr:
			if from, name := p.selector(n); from != "time" || name != "Sleep" {
				return true
			}
			if f.test {
				report(n.Pos(), "a test calls time.Sleep", sleepFix)
			} else {
				report(n.Pos(), "time.Sleep", "wait in a select on a timer and ctx.Done(), so that the wait can be canceled")
			}
		}
		return true
	})
}

const sleepFix = "wait for the event on a channel, or use fake time with testing/synctest"

// startsBubble reports whether call is synctest.Test, or a function of p that calls it. The
// argument of such a call runs in fake time.
func (p *pkg) startsBubble(call *ast.CallExpr) bool {
	if from, name := p.selector(call.Fun); from == "testing/synctest" {
		return name == "Test"
	}
	callee, ok := call.Fun.(*ast.Ident)
	return ok && p.bubbles[p.info.Uses[callee]]
}

// findBubbles returns the functions of p's tests that call synctest.Test.
func (p *pkg) findBubbles() map[types.Object]bool {
	found := map[types.Object]bool{}
	for _, f := range p.files {
		for _, decl := range f.syntax.Decls {
			function, ok := decl.(*ast.FuncDecl)
			if !ok || !f.test || function.Recv != nil {
				continue
			}
			ast.Inspect(function, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && p.startsBubble(call) {
					found[p.info.Defs[function.Name]] = true
				}
				return true
			})
		}
	}
	return found
}

// reportSleepInCases reports the sleeps in the statements of a select with several cases. A case
// may itself receive from a timer: such a timeout ends the wait for the other cases.
func (p *pkg) reportSleepInCases(f *file, s *ast.SelectStmt, report reporter) {
	for _, clause := range s.Body.List {
		for _, statement := range clause.(*ast.CommClause).Body {
			p.reportSleep(f, statement, report)
		}
	}
}

// receivedTimer returns the function of package time whose channel e receives from, as
// "time.After", or "".
func (p *pkg) receivedTimer(e *ast.UnaryExpr) string {
	if e.Op != token.ARROW {
		return ""
	}
	channel := e.X
	if field, ok := channel.(*ast.SelectorExpr); ok && field.Sel.Name == "C" {
		channel = field.X
	}
	call, ok := channel.(*ast.CallExpr)
	if !ok {
		return ""
	}
	if from, name := p.selector(call.Fun); from == "time" {
		return "time." + name
	}
	return ""
}
