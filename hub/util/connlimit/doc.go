// Package connlimit bounds what untrusted connections can hold: those that have not brought a valid credential yet. Their number is bounded
// for each address and in total, and how many requests each has in progress, and a request must be sent within some time.
//
// It does not decide which connections are trusted: the code that authenticates a request calls Trust.
package connlimit
