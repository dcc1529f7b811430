package plugin

import (
	"bufio"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net/rpc"
)

// maxReceived is the number of bytes that the hub reads from a driver over its life: create flags and configurations take some kilobytes.
const maxReceived = 8 << 20

var errTooMuch = errors.New("the driver has sent too much")

// limited returns errTooMuch once more than maxReceived bytes were read.
type limited struct {
	from io.Reader
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errTooMuch
	}
	if int64(len(p)) > l.left {
		p = p[:l.left]
	}
	n, err := l.from.Read(p)
	l.left -= int64(n)
	return n, err
}

// codec is that of net/rpc, safe against what a driver may send: a panic of the decoder is an error.
type codec struct {
	conn io.Closer
	out  *bufio.Writer
	enc  *gob.Encoder
	dec  *gob.Decoder
}

func newCodec(conn io.ReadWriteCloser) *codec {
	out := bufio.NewWriter(conn)
	return &codec{conn: conn, out: out, enc: gob.NewEncoder(out), dec: gob.NewDecoder(&limited{conn, maxReceived})}
}

func (c *codec) WriteRequest(r *rpc.Request, body any) error {
	if err := c.enc.Encode(r); err != nil {
		return err
	}
	if err := c.enc.Encode(body); err != nil {
		return err
	}
	return c.out.Flush()
}

func (c *codec) ReadResponseHeader(r *rpc.Response) error { return c.decode(r) }

func (c *codec) ReadResponseBody(body any) error { return c.decode(body) }

func (c *codec) decode(into any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the driver has sent what is not readable: %v", r)
		}
	}()
	return c.dec.Decode(into)
}

func (c *codec) Close() error { return c.conn.Close() }
