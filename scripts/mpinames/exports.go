package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// exports has what the packages for programs export, by package: functions, types, constants and
// variables, and as Type.Name methods and fields. The value is whether it is a field.
type exports map[string]map[string]bool

func readExports(root string) (exports, error) {
	e := exports{}
	for _, pkg := range []string{"comm", "request", "mpitest"} {
		e[pkg] = map[string]bool{}
		files, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			// The file for Go 1.27 has methods of the names of functions.
			if strings.HasSuffix(file, "_test.go") || strings.HasSuffix(file, "_go127.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			for _, d := range f.Decls {
				addExports(e[pkg], d)
			}
		}
		if len(e[pkg]) == 0 {
			return nil, fmt.Errorf("no package in %s", filepath.Join(root, pkg))
		}
	}
	return e, nil
}

// addExports adds what a declaration exports.
func addExports(names map[string]bool, decl ast.Decl) {
	add := func(on string, isField bool, ids ...*ast.Ident) {
		for _, id := range ids {
			if id.IsExported() && (on == "" || ast.IsExported(on)) {
				names[strings.TrimPrefix(on+"."+id.Name, ".")] = isField
			}
		}
	}
	switch d := decl.(type) {
	case *ast.FuncDecl:
		add(receiver(d), false, d.Name)
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				add("", false, s.Names...)
			case *ast.TypeSpec:
				add("", false, s.Name)
				if of, isStruct := s.Type.(*ast.StructType); isStruct {
					for _, field := range of.Fields.List {
						add(s.Name.Name, true, field.Names...)
					}
				}
			}
		}
	}
}

// receiver returns the name of the type of a method, "" for a function.
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	on := fn.Recv.List[0].Type
	if star, isPointer := on.(*ast.StarExpr); isPointer {
		on = star.X
	}
	switch generic := on.(type) {
	case *ast.IndexExpr:
		on = generic.X
	case *ast.IndexListExpr:
		on = generic.X
	}
	return on.(*ast.Ident).Name
}

// packageOf returns the package that exports a name, "" if none does. Of request's types comm
// exports the names only; their methods and fields are in the documentation of request.
func (e exports) packageOf(name string) string {
	in := []string{"comm", "request"}
	if short, isTest := strings.CutPrefix(name, "mpitest."); isTest {
		name, in = short, []string{"mpitest"}
	}
	for _, pkg := range in {
		if _, found := e[pkg][name]; found {
			return pkg
		}
	}
	return ""
}

// toShow lists what the page must have: what comm and mpitest export, and the methods of requests;
// but no fields, and no methods that errors and printed values have.
func (e exports) toShow() (list []string) {
	add := func(pkg, prefix string, filter func(name string) bool) {
		for name, isField := range e[pkg] {
			_, method, _ := strings.Cut(name, ".")
			if !isField && filter(name) && !slices.Contains([]string{"Error", "Unwrap", "String"}, method) {
				list = append(list, prefix+name)
			}
		}
	}
	all := func(string) bool { return true }
	add("comm", "", all)
	add("mpitest", "mpitest.", all)
	add("request", "", func(name string) bool { return strings.HasPrefix(name, "Request.") })
	slices.Sort(list)
	return list
}

// links makes links to the documentation of names.
func (e exports) links(names []string) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = fmt.Sprintf("[%s](https://pkg.go.dev/github.com/mpigo/mpigo/%s#%s)",
			name, e.packageOf(name), strings.TrimPrefix(name, "mpitest."))
	}
	return strings.Join(list, ", ")
}
