package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// checkGlobals verifies that no package variable is written after start. It reports variables of
// mutable types (locks, pools, atomics, channels) where they are declared, and statements that
// write a variable: an assignment, ++, clear, copy, delete, an address passed to a function, or a
// write to an element or field, in this package or another.
//
// It does not detect a method that changes its receiver or a write through a returned pointer. The
// exceptions are in layers.go; tests are not checked.
func checkGlobals(p *pkg, report reporter) {
	for f := range p.nonTestFiles {
		for _, decl := range f.syntax.Decls {
			if variables, ok := decl.(*ast.GenDecl); ok && variables.Tok == token.VAR {
				p.reportMutable(variables, report)
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			for _, target := range p.writes(n) {
				if name, ok := p.globalName(target); ok {
					report(n.Pos(), "package variable "+name+" is written after start",
						"keep the state in a value that a constructor returns")
				}
			}
			return true
		})
	}
}

// reportMutable reports the variables of a declaration whose type is mutable.
func (p *pkg) reportMutable(decl *ast.GenDecl, report reporter) {
	for _, spec := range decl.Specs {
		valueSpec, ok := spec.(*ast.ValueSpec)
		if !ok {
			continue
		}
		typeExprs := []ast.Expr{valueSpec.Type}
		for _, value := range valueSpec.Values {
			typeExprs = append(typeExprs, literalType(value))
		}
		mutable := ""
		for _, e := range typeExprs {
			if mutable = p.mutablePart(e, map[string]bool{}); mutable != "" {
				break
			}
		}
		if mutable == "" {
			continue
		}
		for _, name := range valueSpec.Names {
			if name.Name == "_" || slices.Contains(mutableGlobals(), globalVar{p.dir, name.Name}) {
				continue
			}
			report(name.Pos(), fmt.Sprintf("package variable %s is mutable (%s)", name.Name, mutable),
				"keep the state in a value that a constructor returns, or list the variable in internal/archtest/layers.go if the whole process must share it")
		}
	}
}

// literalType returns the type of an initial value, or nil if the expression does not name it.
func literalType(value ast.Expr) ast.Expr {
	switch v := ast.Unparen(value).(type) {
	case *ast.UnaryExpr:
		if v.Op == token.AND {
			return literalType(v.X)
		}
	case *ast.CompositeLit:
		return v.Type
	case *ast.CallExpr:
		if builtin, ok := v.Fun.(*ast.Ident); ok && len(v.Args) > 0 && (builtin.Name == "make" || builtin.Name == "new") {
			return v.Args[0]
		}
	}
	return nil
}

// mutablePart returns the mutable part of a type, or "" if there is none. seen holds the type names
// that were visited.
func (p *pkg) mutablePart(typeExpr ast.Expr, seen map[string]bool) string {
	switch t := typeExpr.(type) {
	case *ast.ParenExpr:
		return p.mutablePart(t.X, seen)
	case *ast.StarExpr:
		return p.mutablePart(t.X, seen)
	case *ast.ArrayType:
		return p.mutablePart(t.Elt, seen)
	case *ast.MapType:
		return p.mutablePart(t.Value, seen)
	case *ast.IndexExpr: // atomic.Pointer[T]
		return p.mutablePart(t.X, seen)
	case *ast.ChanType:
		return "channel"
	case *ast.SelectorExpr:
		switch importPath, name := p.selector(t); {
		case importPath == "sync" && name != "Locker", importPath == "sync/atomic":
			return types.ExprString(t)
		}
	case *ast.StructType:
		for _, field := range t.Fields.List {
			if found := p.mutablePart(field.Type, seen); found != "" {
				return found
			}
		}
	case *ast.Ident:
		if spec := p.typeNamed(t.Name); spec != nil && !seen[t.Name] {
			seen[t.Name] = true
			return p.mutablePart(spec.Type, seen)
		}
	}
	return ""
}

// typeNamed returns the declaration of a type of p, or nil if there is none.
func (p *pkg) typeNamed(name string) *ast.TypeSpec {
	for f := range p.nonTestFiles {
		for _, decl := range f.syntax.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.TYPE {
				continue
			}
			for _, spec := range group.Specs {
				if typeSpec, ok := spec.(*ast.TypeSpec); ok && typeSpec.Name.Name == name {
					return typeSpec
				}
			}
		}
	}
	return nil
}

// writes returns the expressions that a node assigns or modifies.
func (p *pkg) writes(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			return n.Lhs
		}
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			return []ast.Expr{n.Key, n.Value}
		}
	case *ast.CallExpr:
		return p.writesOfCall(n)
	}
	return nil
}

func (p *pkg) writesOfCall(call *ast.CallExpr) []ast.Expr {
	if builtin, ok := call.Fun.(*ast.Ident); ok && len(call.Args) > 0 && p.info.Uses[builtin] == types.Universe.Lookup(builtin.Name) {
		switch builtin.Name {
		case "clear", "copy", "delete":
			return call.Args[:1]
		}
	}
	var targets []ast.Expr
	for _, argument := range call.Args {
		if address, ok := ast.Unparen(argument).(*ast.UnaryExpr); ok && address.Op == token.AND {
			targets = append(targets, address.X)
		}
	}
	return targets
}

// globalName returns the name of the package variable that e refers to, directly or in part.
func (p *pkg) globalName(e ast.Expr) (name string, ok bool) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return p.globalName(e.X)
	case *ast.StarExpr:
		return p.globalName(e.X)
	case *ast.IndexExpr:
		return p.globalName(e.X)
	case *ast.SliceExpr:
		return p.globalName(e.X)
	case *ast.UnaryExpr:
		if e.Op == token.AND {
			return p.globalName(e.X)
		}
	case *ast.SelectorExpr:
		if importPath, name := p.selector(e); importPath != "" {
			return guessName(importPath) + "." + name, true
		}
		return p.globalName(e.X)
	case *ast.Ident:
		variable, isVariable := p.info.Uses[e].(*types.Var)
		if isVariable && variable.Parent() == p.types.Scope() && !slices.Contains(mutableGlobals(), globalVar{p.dir, e.Name}) {
			return e.Name, true
		}
	}
	return "", false
}
