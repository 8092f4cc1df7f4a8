// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"encoding/json"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peer is the other end of a connection.
type peer struct {
	decoder *json.Decoder
	encoder *json.Encoder
}

func newPeer(conn net.Conn) *peer {
	return &peer{decoder: json.NewDecoder(conn), encoder: json.NewEncoder(conn)}
}

func (p *peer) read() (Request, error) {
	var r Request
	err := p.decoder.Decode(&r)
	return r, err
}

func (p *peer) write(r Reply) error { return p.encoder.Encode(r) }

// flush writes the remaining replies to a peer that sends no more requests. The peer
// may have closed the connection.
func (p *peer) flush(replies <-chan Reply) {
	for {
		select {
		case r := <-replies:
			_ = p.write(r)
		default:
			return
		}
	}
}

// user is who has connected, as the kernel says.
type user struct{ pid, uid int }

func credentials(conn *net.UnixConn) (user, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return user{}, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return user{}, err
	}
	if credErr != nil {
		return user{}, fmt.Errorf("credentials of the peer: %w", credErr)
	}
	return user{pid: int(cred.Pid), uid: int(cred.Uid)}, nil
}
