package patch

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/drover-dev/drover/hub/util/message"
)

// Conditions sets conditions of an object of which this controller writes nothing else. If they are set already, it neither sends a request
// nor copies the object. The object, which may be the cache's own, stays as it is. The conditions have no observedGeneration: what they say
// does not come from the spec of the object, and would have to be written again whenever another controller changes that.
func Conditions(ctx context.Context, c client.Client, object Object, owner client.FieldOwner, wanted ...metav1.Condition) error {
	if has(object, wanted) {
		return nil
	}
	// Objects from a list are behind what was written last.
	object, err := Latest(ctx, c, object)
	if err != nil || has(object, wanted) {
		return err
	}
	types := make([]string, len(wanted))
	for i, w := range wanted {
		types[i] = w.Type
	}
	helper, changed := NewHelper(c, object, owner, types...), object.DeepCopyObject().(Object)
	for _, w := range wanted {
		conditions.Set(changed, w)
	}
	adjust(changed, types, func(c *metav1.Condition) {
		c.Message, c.ObservedGeneration = message.Bound(c.Message, message.MaxCondition), 0
	})
	if raw := jsonPatch(object, changed.GetConditions(), types); raw != nil {
		err := c.Status().Patch(ctx, empty(object), client.RawPatch(apitypes.JSONPatchType, raw), owner)
		if err == nil || apierrors.IsNotFound(err) {
			return nil
		}
	}
	return helper.Patch(ctx, changed)
}

// RemoveCondition removes a condition from an object of which this controller writes nothing else. If the object has none of the type, it
// neither sends a request nor copies the object. The object, which may be the cache's own, stays as it is.
func RemoveCondition(ctx context.Context, c client.Client, object Object, owner client.FieldOwner, conditionType string) error {
	if !conditions.Has(object, conditionType) {
		return nil
	}
	helper, changed := NewHelper(c, object, owner, conditionType), object.DeepCopyObject().(Object)
	conditions.Delete(changed, conditionType)
	return helper.Patch(ctx, changed)
}

// has reports whether an object has all of these conditions.
func has(object Object, wanted []metav1.Condition) bool {
	have := object.GetConditions()
	return !slices.ContainsFunc(wanted, func(w metav1.Condition) bool {
		w.Message, w.ObservedGeneration = message.Bound(w.Message, message.MaxCondition), 0
		return !same(meta.FindStatusCondition(have, w.Type), &w)
	})
}

// Latest returns what a client of NewClient knows of an object, which may be newer than the object, for instance one from a list: the
// object itself if that is as new, or the client knows none or another one of that name. It sends no request.
func Latest[T client.Object](ctx context.Context, c client.Reader, object T) (T, error) {
	latest := reflect.New(reflect.TypeOf(object).Elem()).Interface().(T)
	err := c.Get(ctx, client.ObjectKeyFromObject(object), latest)
	if err != nil || latest.GetUID() != object.GetUID() || !newer(latest, object) {
		return object, client.IgnoreNotFound(err)
	}
	return latest, nil
}

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// jsonPatch changes the conditions of some types from those of object to those in after, which has them all in their order. Unlike a merge
// patch, which has the whole list, it needs no resource version, so that other writers of the object cause no conflict. It fails if another
// object has the name now, or the list is another one where it is changed. It is nil for an object that has no conditions yet.
func jsonPatch(object Object, after []metav1.Condition, types []string) []byte {
	list := slices.Clone(object.GetConditions())
	if object.GetUID() == "" || len(list) == 0 {
		return nil
	}
	operations := []operation{{"test", "/metadata/uid", object.GetUID()}}
	is := func(i int) {
		operations = append(operations, operation{"test", fmt.Sprintf("/status/conditions/%d/type", i), list[i].Type})
	}
	for _, conditionType := range types {
		want := meta.FindStatusCondition(after, conditionType)
		if i := slices.IndexFunc(list, func(c metav1.Condition) bool { return c.Type == conditionType }); i >= 0 {
			is(i)
			operations = append(operations, operation{"replace", fmt.Sprintf("/status/conditions/%d", i), want})
			continue
		}
		i := 0 // after all that come before it
		for _, c := range after[:slices.IndexFunc(after, func(c metav1.Condition) bool { return c.Type == conditionType })] {
			if slices.ContainsFunc(list, func(l metav1.Condition) bool { return l.Type == c.Type }) {
				i++
			}
		}
		if i > 0 {
			is(i - 1)
		}
		if i < len(list) {
			is(i)
		}
		operations = append(operations, operation{"add", fmt.Sprintf("/status/conditions/%d", i), want})
		list = slices.Insert(list, i, *want)
	}
	raw, err := json.Marshal(operations)
	if err != nil {
		return nil
	}
	return raw
}

// same reports whether two conditions are equal except for their time; nil is no condition.
func same(a, b *metav1.Condition) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message && a.ObservedGeneration == b.ObservedGeneration
}

// boundMessages cuts the messages of owned conditions to the limit of the API.
func boundMessages(object Object, owned []string) {
	adjust(object, owned, func(c *metav1.Condition) { c.Message = message.Bound(c.Message, message.MaxCondition) })
}

// adjust changes the owned conditions of an object.
func adjust(object Object, owned []string, change func(*metav1.Condition)) {
	all := slices.Clone(object.GetConditions())
	for i := range all {
		if slices.Contains(owned, all[i].Type) {
			change(&all[i])
		}
	}
	object.SetConditions(all)
}

// mergeConditions applies the changes of owned conditions from before to after to latest, and reports whether there are any. Conditions
// that after has are in its order.
func mergeConditions(latest, before, after []metav1.Condition, owned []string) (merged []metav1.Condition, differ bool) {
	want := slices.Clone(latest)
	for _, conditionType := range owned {
		previous, current := meta.FindStatusCondition(before, conditionType), meta.FindStatusCondition(after, conditionType)
		if same(previous, current) {
			continue
		}
		if current == nil {
			differ = meta.RemoveStatusCondition(&want, conditionType) || differ
		} else {
			differ = meta.SetStatusCondition(&want, *current) || differ
		}
	}
	order := func(c metav1.Condition) int {
		i := slices.IndexFunc(after, func(a metav1.Condition) bool { return a.Type == c.Type })
		if i < 0 {
			return len(after)
		}
		return i
	}
	slices.SortStableFunc(want, func(a, b metav1.Condition) int { return order(a) - order(b) })
	return want, differ
}
