package testenv

import (
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AllOf is the right to do everything with all kinds of API groups.
func AllOf(groups ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: groups, Resources: []string{"*"}, Verbs: []string{"*"}}
}

// Tenant acts as a user who has the given rights in one namespace, and none elsewhere.
func (e *Env) Tenant(t *testing.T, namespace string, rights ...rbacv1.PolicyRule) client.Client {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "tenant-"}, Rules: rights}
	e.Create(t, role)
	user := namespace + "-" + role.Name
	e.Create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	e.AwaitRights(t, user, namespace, rights...)
	config := rest.CopyConfig(e.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	out, err := client.New(config, client.Options{Scheme: e.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// AwaitRights waits until the API server counts the rights that a user was given: it takes up roles and bindings some time after they are
// there. Of each rule the first of everything is asked for. An empty namespace is for rights in all of them.
func (e *Env) AwaitRights(t *testing.T, user, namespace string, rights ...rbacv1.PolicyRule) {
	t.Helper()
	for _, right := range rights {
		resource, subresource, _ := strings.Cut(right.Resources[0], "/")
		asked := authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: right.Verbs[0], Group: right.APIGroups[0], Resource: resource, Subresource: subresource,
		}}
		if len(right.ResourceNames) > 0 {
			asked.ResourceAttributes.Name = right.ResourceNames[0]
		}
		Until(t, fmt.Sprintf("%s to have the right %+v", user, asked.ResourceAttributes), func() error {
			review := &authorizationv1.SubjectAccessReview{Spec: asked}
			if err := e.Client.Create(t.Context(), review); err != nil {
				return err
			}
			if !review.Status.Allowed {
				return fmt.Errorf("it has not: %s", review.Status.Reason)
			}
			return nil
		})
	}
}
