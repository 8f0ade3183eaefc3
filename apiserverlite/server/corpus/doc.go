// Package corpus reads the table of requests in apiserverlite/server/testdata/corpus, sends them and
// compares the answers with those that the table tells. How to write a row is said in the README there.
//
// It knows nothing of the server: the same rows go to apiserverlite in its own tests, and to
// upstream's server and ours side by side in internal/interop/peer. Only tests use it.
package corpus
