// Package admission installs the rules that need to know who writes an object. All rules that can do without are in the definitions of the
// kinds themselves. It holds policies only, which the API server carries out; there is no webhook that could be unavailable.
package admission

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strconv"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

//go:embed policies.yaml
var policies []byte

const fieldOwner = client.FieldOwner("drover-admission")

// Install applies the policies. Applying what is there already changes nothing. They know the hub as the user that c acts as.
func Install(ctx context.Context, c client.Client) error {
	self := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, self); err != nil {
		return fmt.Errorf("asking the API server as whom the hub acts: %w", err)
	}
	objects, err := all()
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := nameHub(object, self.Status.UserInfo.Username); err != nil {
			return err
		}
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), fieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("installing the %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// Names returns the names of all policies and bindings.
func Names() ([]string, error) {
	objects, err := all()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, object := range objects {
		names = append(names, object.GetName())
	}
	return names, nil
}

// all returns all policies and their bindings: those that are written down, and those that are made of tables.
func all() ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(policies), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("decoding admission policies: %w", err)
		}
		objects = append(objects, object)
	}
	policy, binding := credentials()
	for _, made := range []any{policy, binding} {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(made)
		if err != nil {
			return nil, fmt.Errorf("encoding admission policies: %w", err)
		}
		delete(content, "status")
		objects = append(objects, &unstructured.Unstructured{Object: content})
	}
	return objects, nil
}

// nameHub puts the hub's user into a policy: into the variable that is true if the writer is the hub, or the condition that is true if it
// is somebody else.
func nameHub(policy *unstructured.Unstructured, user string) error {
	return errors.Join(
		setExpression(policy, "variables", "hub", "request.userInfo.username == "+strconv.Quote(user)),
		setExpression(policy, "matchConditions", "others", "request.userInfo.username != "+strconv.Quote(user)))
}

// setExpression replaces an expression of a policy, if there is one of that name.
func setExpression(policy *unstructured.Unstructured, field, name, expression string) error {
	entries, _, err := unstructured.NestedSlice(policy.Object, "spec", field)
	if err != nil {
		return fmt.Errorf("reading %s of the policy %s: %w", field, policy.GetName(), err)
	}
	for _, entry := range entries {
		if e, ok := entry.(map[string]any); ok && e["name"] == name {
			e["expression"] = expression
			if err := unstructured.SetNestedSlice(policy.Object, entries, "spec", field); err != nil {
				return fmt.Errorf("naming the hub in the policy %s: %w", policy.GetName(), err)
			}
		}
	}
	return nil
}
