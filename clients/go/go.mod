module github.com/example/sandbox

go 1.19
