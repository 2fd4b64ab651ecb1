module github.com/example/sandbox-examples

go 1.19

require github.com/example/sandbox v0.0.0

replace github.com/example/sandbox => ../../clients/go
