// Package failure tells what is behind an error of the Kubernetes API when it was wrapped and joined with others on its way, and keeps
// reconcilers from reporting what is no failure. It knows no kind of object.
package failure

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
)

// All tells whether every single error that err is made of matches. It is false for nil.
func All(err error, match func(error) bool) bool {
	if err == nil {
		return false
	}
	for {
		if joined := parts(err); joined != nil {
			for _, part := range joined {
				if part != nil && !All(part, match) {
					return false
				}
			}
			return true
		}
		if match(err) {
			return true
		}
		if err = errors.Unwrap(err); err == nil {
			return false
		}
	}
}

// parts are the errors that an error joins; nil if it is a single one.
func parts(err error) []error {
	// The error itself is looked at, and what it wraps is the caller's next step.
	switch e := err.(type) { //nolint:errorlint
	case kerrors.Aggregate:
		return e.Errors()
	case interface{ Unwrap() []error }:
		return e.Unwrap()
	}
	return nil
}

// IsRace tells that somebody else wrote first. It is how writers are kept apart; whoever loses looks again.
func IsRace(err error) bool {
	return All(err, func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) })
}

// IsGone tells that what was to be written is not there any more.
func IsGone(err error) bool { return All(err, apierrors.IsNotFound) }

// IsEnding tells that nothing new can be made in a namespace because the namespace is being deleted, and all in it will be.
func IsEnding(err error) bool {
	return All(err, func(err error) bool { return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) })
}
