package v1alpha1

import "reflect"

// Kind returns the kind of an operation, such as "ETCDSnapshotSave". Objects of a typed client do not say it.
func Kind(op Operation) string { return typeName(op) }

// ListOf returns an empty list of the kind of an operation; nil for one that is not in Lists.
func ListOf(op Operation) List {
	for _, list := range Lists() {
		if typeName(list) == typeName(op)+"List" {
			return list
		}
	}
	return nil
}

func typeName(object any) string { return reflect.TypeOf(object).Elem().Name() }
