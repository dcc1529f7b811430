package render

import (
	"github.com/drover-dev/drover/hub/api/references"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// refer returns what a field names, if it exists and the field's rule lets the cluster have it. All else is a problem of the field.
func (b *builder) refer(rule references.Rule, field string, ref Reference) (Object, bool) {
	object, ok := b.Cluster.Objects[ref]
	switch {
	case !ok:
		namespace := ref.Namespace
		if namespace == "" {
			namespace = b.Cluster.Namespace
		}
		b.problems.fail(field, "%s %q does not exist in namespace %s", ref.Kind, ref.Name, namespace)
	case object.Forbidden != "":
		b.problems.fail(field, "%s %q is given to no machine: %s; name another one", ref.Kind, ref.Name, object.Forbidden)
	case ref.Kind == KindSecret && !rule.Takes(object.Type):
		b.problems.fail(field, "Secret %q has type %q; it takes %s", ref.Name, object.Type, rule.TypeNames())
	default:
		return object, b.consents(rule.Consent, field, ref, object)
	}
	return Object{}, false
}

// consents reports whether an object says itself, where it has to, that the cluster may have it. Without that, whoever may write a cluster
// could have any Secret of the namespace written to a machine, and with a name in front, any Secret.
func (b *builder) consents(consent references.Consent, field string, ref Reference, object Object) bool {
	own := ref.Namespace == "" || ref.Namespace == b.Cluster.Namespace
	whole := b.Cluster.Namespace + "/" + b.Cluster.Name
	annotation, entry := rkev1.AuthorizedSecretAnnotation, whole
	if own {
		entry = b.Cluster.Name
	}
	ok := false
	switch consent {
	case references.NoConsent:
		ok = own
	case references.ConsentObject:
		annotation, ok = rkev1.AuthorizedObjectAnnotation, own && object.authorizes(b.Cluster.Name)
	case references.ConsentElsewhere:
		ok = own || lists(object.GrantedTo, whole)
	case references.ConsentSecret:
		ok = lists(object.GrantedTo, whole) || own && lists(object.GrantedTo, b.Cluster.Name)
	}
	if !ok {
		b.problems.fail(field, "%s %q is not authorized for this cluster; add %q to its annotation %s", ref.Kind, ref.Name, entry, annotation)
	}
	return ok
}
