// Package limitedjson decodes JSON of servers that may be hostile value by value, each of limited size. A list of empty objects takes a
// hundred times its length when client-go decodes it as a whole. How many values are decoded is up to the caller.
package limitedjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	// MaxValue is the size in bytes of a value that is read at most.
	MaxValue = 1 << 20
	// maxToken is how many bytes are read for what is between values, white space included, which a json.Decoder searches again and again.
	maxToken = 4 << 10
)

// ErrTooLarge is returned instead of reading further.
var ErrTooLarge = errors.New("an object, or what is between two objects, is longer than the hub reads")

// Decoder decodes JSON values one after the other.
type Decoder struct {
	json *json.Decoder
	in   limitedReader
}

// NewDecoder returns a Decoder of what is read from a reader.
func NewDecoder(from io.Reader) *Decoder {
	d := &Decoder{in: limitedReader{from: from}}
	d.json = json.NewDecoder(&d.in)
	return d
}

// Decode decodes the next value. The error is io.EOF where there is none.
func (d *Decoder) Decode(into any) error {
	d.in.left = MaxValue
	return d.json.Decode(into)
}

// List decodes the metadata of a list of the Kubernetes API, and calls item for each item, which must decode it.
func (d *Decoder) List(metadata any, item func() error) error {
	return d.fields(func(name string) error {
		switch name {
		case "metadata":
			return d.Decode(metadata)
		case "items":
			return d.each('[', ']', item)
		}
		return d.Decode(&json.RawMessage{})
	})
}

// delimiter reads the beginning or end of an object or array; null is false.
func (d *Decoder) delimiter(want json.Delim) (bool, error) {
	d.in.left = maxToken
	switch got, err := d.json.Token(); {
	case err != nil:
		return false, err
	case got == nil:
		return false, nil
	case got != want:
		return false, fmt.Errorf("the answer has no %s where one belongs", want)
	}
	return true, nil
}

// fields calls read for each field of an object, which must read its value.
func (d *Decoder) fields(read func(name string) error) error {
	return d.each('{', '}', func() error {
		name, err := d.json.Token()
		if err != nil {
			return err
		}
		text, _ := name.(string)
		return read(text)
	})
}

// each calls read for each item of an array, or field of an object, which must read it. Either may be null.
func (d *Decoder) each(begin, end json.Delim, read func() error) error {
	if found, err := d.delimiter(begin); err != nil || !found {
		return err
	}
	for {
		d.in.left = maxToken
		if !d.json.More() {
			break
		}
		if err := read(); err != nil {
			return err
		}
	}
	_, err := d.delimiter(end)
	return err
}

// limitedReader reads no more than is left.
type limitedReader struct {
	from io.Reader
	left int
}

// Read implements io.Reader.
func (r *limitedReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, ErrTooLarge
	}
	n, err := r.from.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}
