// Package man holds the manual pages of the system-agent, which are made of its commands' help.
package man

//go:generate go run ./generate
