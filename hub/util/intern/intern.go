// Package intern has equal strings of objects that are kept in memory share their bytes. Each object that a client decodes has all its
// strings for its own, and most of them say what those of many other objects say: keys of labels, reasons of conditions, names of owners.
package intern

import (
	"bytes"
	"hash/maphash"
	"reflect"
	"sync/atomic"
	"unsafe"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// maxStrings is how many strings are known at a time: a new one takes the place of another. It is a power of two.
	maxStrings = 1 << 14
	// longestString is how many bytes a string may have to be known. Longer ones are rarely equal, and those known stay in memory.
	longestString = 128
	// maxContents is how many values of Secrets are known that are as short, and maxLarge how many others.
	maxContents = 1 << 9
	maxLarge    = 1 << 16
	// managedFields are left out: most objects are kept without.
	managedFields = "managedFields"
	// fullMap is how many entries Go keeps in a map without a table.
	fullMap = 8
)

// known is a string, and the same in an interface, which would need memory of its own each time.
type known struct {
	text  string
	boxed any
}

// knownLarge is a value of a Secret that stays in memory for as long as somebody else has it.
type knownLarge struct {
	first  weak.Pointer[byte]
	length int
}

var (
	seed     = maphash.MakeSeed()
	texts    [maxStrings]atomic.Pointer[known]
	contents [maxContents]atomic.Pointer[[]byte]
	large    [maxLarge]atomic.Pointer[knownLarge]
	managers = reflect.TypeFor[[]metav1.ManagedFieldsEntry]()
)

// Object replaces the strings of an object, and the content of a Secret, by equal ones that were seen before, and slices by ones without
// room for more elements. It takes a pointer to a typed object or an unstructured one, which nobody else may use meanwhile, and whose
// content nobody may change in place afterwards. What else there is in an object, and anything else, stays as it is.
func Object(object any) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		u.Object, _ = untyped(u.Object).(map[string]any)
		return
	}
	typed(reflect.ValueOf(object))
}

// typed replaces the strings of a value, where they can be set.
func typed(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() {
			v.SetString(text(v.String()))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			typed(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Field(i); field.CanSet() {
				typed(field)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 || v.Type() == managers {
			return
		}
		clip(v)
		for i := range v.Len() {
			typed(v.Index(i))
		}
	case reflect.Map:
		typedMap(v)
	}
}

// clip replaces a slice with room for more elements, which decoders leave, by one without.
func clip(v reflect.Value) {
	if !v.CanSet() || v.Cap() == v.Len() {
		return
	}
	clipped := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
	reflect.Copy(clipped, v)
	v.Set(clipped)
}

// typedMap does the same for labels, annotations, and the content of Secrets and ConfigMaps.
func typedMap(v reflect.Value) {
	if !v.CanSet() {
		return
	}
	switch m := v.Interface().(type) {
	case map[string]string:
		to := writable(m)
		for key, value := range m {
			to[text(key)] = text(value)
		}
		v.Set(reflect.ValueOf(to))
	case map[string][]byte:
		to := writable(m)
		for key, value := range m {
			to[text(key)] = content(value)
		}
		v.Set(reflect.ValueOf(to))
	}
}

// writable is where the entries of a map are written, with equal keys. That is the map, which takes the new key in the place of an equal
// one, or a new map in the place of one that is full: Go would make a table for it, with twice the memory, also where the key is there.
func writable[V any](m map[string]V) map[string]V {
	if len(m) == fullMap {
		return make(map[string]V, fullMap)
	}
	return m
}

// untyped replaces the strings of what JSON was decoded to, and returns what takes its place.
func untyped(value any) any {
	switch v := value.(type) {
	case string:
		if v != "" && len(v) <= longestString {
			return find(v).boxed
		}
	case []any:
		for i := range v {
			v[i] = untyped(v[i])
		}
	case map[string]any:
		to := writable(v)
		for key, element := range v {
			if key != managedFields {
				element = untyped(element)
			}
			to[text(key)] = element
		}
		return to
	}
	return value
}

func text(s string) string {
	if s == "" || len(s) > longestString {
		return s
	}
	return find(s).text
}

func find(s string) *known {
	slot := &texts[maphash.String(seed, s)%maxStrings]
	if found := slot.Load(); found != nil && found.text == s {
		return found
	}
	found := &known{s, s}
	slot.Store(found)
	return found
}

func content(b []byte) []byte {
	switch {
	case len(b) == 0:
		return b
	case len(b) > longestString:
		return largeContent(b)
	}
	slot := &contents[maphash.Bytes(seed, b)%maxContents]
	if found := slot.Load(); found != nil && bytes.Equal(*found, b) {
		return *found
	}
	b = b[:len(b):len(b)]
	slot.Store(&b)
	return b
}

func largeContent(b []byte) []byte {
	slot := largeSlot(b)
	if found := slot.Load(); found != nil && found.length == len(b) {
		if first := found.first.Value(); first != nil {
			if same := unsafe.Slice(first, found.length); bytes.Equal(same, b) {
				return same
			}
		}
	}
	b = b[:len(b):len(b)]
	slot.Store(&knownLarge{weak.Make(unsafe.SliceData(b)), len(b)})
	return b
}

func largeSlot(b []byte) *atomic.Pointer[knownLarge] { return &large[maphash.Bytes(seed, b)%maxLarge] }
