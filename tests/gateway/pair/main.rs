// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two gateways on loopback, and programs that use them.

mod ends;
mod leg;
mod path;
mod site;
mod stopped;
mod strangers;
