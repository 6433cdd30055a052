// The documentation is a module of its own, without code, so that the pages and pictures are not
// part of what programs download. They are read where the repository is hosted.
module github.com/mpigo/mpigo/docs

go 1.26
