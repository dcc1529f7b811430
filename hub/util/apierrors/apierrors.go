// Package apierrors classifies errors of the Kubernetes API that were wrapped and joined with others, and keeps reconcilers from reporting
// those that are no failures. It knows no kind of object.
package apierrors

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
)

// All reports whether every single error that err is made of matches. It is false for nil.
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
	// Only the error itself counts; the caller unwraps it.
	switch e := err.(type) { //nolint:errorlint
	case kerrors.Aggregate:
		return e.Errors()
	case interface{ Unwrap() []error }:
		return e.Unwrap()
	}
	return nil
}

// IsRace returns whether another writer was first: a conflict, or an object that exists already. A retry reads the object again.
func IsRace(err error) bool {
	return All(err, func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) })
}

// IsGone returns whether the object does not exist any more.
func IsGone(err error) bool { return All(err, apierrors.IsNotFound) }

// IsEnding returns whether nothing can be created because the namespace is being deleted.
func IsEnding(err error) bool {
	return All(err, func(err error) bool { return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) })
}

// IsRefused returns whether the API server does not take a change, as with a quota or with a policy in an admission webhook: retries alone
// do not help then.
func IsRefused(err error) bool {
	return All(err, func(err error) bool {
		return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
	})
}
