package apierrors

import (
	"errors"
	"fmt"
	"testing"

	pkgerrors "github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
)

// TestIsRefused: what a retry may do is not refused, and a joined error is as a whole or not at all.
func TestIsRefused(t *testing.T) {
	resource := schema.GroupResource{Resource: "nodes"}
	denied, bad := apierrors.NewForbidden(resource, "a", errors.New("policy")), apierrors.NewBadRequest("no")
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"nil":                     {},
		"a policy":                {err: fmt.Errorf("writing: %w", denied), want: true},
		"a webhook":               {err: bad, want: true},
		"a schema":                {err: apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "a", nil), want: true},
		"two":                     {err: errors.Join(denied, bad), want: true},
		"a conflict":              {err: apierrors.NewConflict(resource, "a", errors.New("changed"))},
		"an outage":               {err: apierrors.NewInternalError(errors.New("etcd"))},
		"no answer":               {err: errors.New("connection refused")},
		"a policy, and no answer": {err: errors.Join(denied, errors.New("connection refused"))},
	} {
		if got := IsRefused(tc.err); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestKinds(t *testing.T) {
	resource := schema.GroupResource{Resource: "secrets"}
	gone := apierrors.NewNotFound(resource, "a")
	race := apierrors.NewConflict(resource, "a", errors.New("changed"))
	exists := apierrors.NewAlreadyExists(resource, "a")
	ending := apierrors.NewForbidden(resource, "a", errors.New("terminating"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	other := errors.New("other")
	tests := map[string]struct {
		err                error
		race, gone, ending bool
	}{
		"nil":                        {},
		"other":                      {err: other},
		"race":                       {err: race, race: true},
		"already exists":             {err: fmt.Errorf("creating: %w", exists), race: true},
		"wrapped":                    {err: fmt.Errorf("writing: %w", gone), gone: true},
		"joined":                     {err: errors.Join(race, exists), race: true},
		"joined with another":        {err: errors.Join(race, other)},
		"joined with another kind":   {err: errors.Join(race, gone)},
		"aggregate within a wrapper": {err: pkgerrors.Wrapf(kerrors.NewAggregate([]error{pkgerrors.Wrap(gone, "b"), gone}), "a"), gone: true},
		"mixed within a wrapper":     {err: pkgerrors.Wrapf(kerrors.NewAggregate([]error{gone, other}), "a")},
		"ending namespace":           {err: fmt.Errorf("creating: %w", ending), ending: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if IsRace(tc.err) != tc.race || IsGone(tc.err) != tc.gone || IsEnding(tc.err) != tc.ending {
				t.Errorf("race %v, gone %v, ending %v", IsRace(tc.err), IsGone(tc.err), IsEnding(tc.err))
			}
		})
	}
}
