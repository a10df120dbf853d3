// Package configjson owns config.json: it reads the file, checks all of it and
// makes the model of package config out of it.
//
// The way of a file: Load or Parse (load.go) -> the tree (package document) ->
// the structs that spell every key (keys_*.go) -> reader, which converts them
// and checks what one key says about another (convert_*.go) -> config.Snapshot.
// Problems are collected to the end and carry their position; a snapshot is
// returned only if there is no error among them.
//
// What is built is an argument (Kinds): a protocol, filter, policy or cluster
// type that the schema knows and Kinds does not list is refused by its name as
// not supported yet, and one that the schema does not know with the nearest name
// that it does. Nothing is skipped.
package configjson
