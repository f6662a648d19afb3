// TLS against a real server and with certificates that are made for it, both by with_server.sh --tls.
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "client.h"
#include "server.h"

namespace kachel::redis {
namespace {

std::string file(const std::string& name) {
  return from_environment("REDIS_FILES") + "/" + name;
}
std::string address(const std::string& options, const std::string& host = "localhost", const std::string& user = "") {
  return "rediss://" + user + host + ":" + from_environment("REDIS_TLS_PORT") + "/0?connect_ms=5000&command_ms=5000&" +
         options;
}
std::string trusting() {
  return "ca=" + file("ca.crt");
}
std::string with_client() {
  return trusting() + "&cert=" + file("client.crt") + "&key=" + file("client.key");
}

// What a host is told of an address that is of no use.
std::string refused(const std::string& text) {
  kachel_redis* redis = nullptr;
  char why[256] = "";
  CHECK(kachel_redis_create(text.c_str(), &redis, why, sizeof why) == KACHEL_E_INVALID);
  CHECK(redis == nullptr);
  return why;
}
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("values go there and come back, by the host's name and by its address") {
  Client name(address(trusting())), number(address(trusting(), "127.0.0.1"));
  CHECK(std::string(kachel_redis_name(number.get())) ==
        "rediss://127.0.0.1:" + from_environment("REDIS_TLS_PORT") + "/0");
  REQUIRE_MESSAGE(name.put("kachel:1:a", "value") == KACHEL_REMOTE_DONE, name.why);
  REQUIRE_MESSAGE(number.get("kachel:1:a") == KACHEL_REMOTE_DONE, number.why);
  CHECK(number.value == "value");
  CHECK(number.get("kachel:1:b") == KACHEL_REMOTE_ABSENT);
  CHECK(cli("get kachel:1:a") == "value");
}

TEST_CASE("values of tens of megabytes") {
  Client client(address(trusting()));
  std::string value(48 << 20, 'v');
  value[12345678] = 'x';
  REQUIRE_MESSAGE(client.put("large", value) == KACHEL_REMOTE_DONE, client.why);
  MESSAGE("put in ", client.seconds, " s");
  REQUIRE_MESSAGE(client.get("large") == KACHEL_REMOTE_DONE, client.why);
  MESSAGE("got in ", client.seconds, " s");
  CHECK((client.value == value));
  CHECK(cli("del large") == "1");
}

TEST_CASE("a server that cannot prove who it is gets nothing") {
  Client unknown(address("")), other(address("ca=" + file("other.crt"))), elsewhere(address(trusting(), "127.0.0.2"));
  for (Client* client : {&unknown, &other}) {
    CHECK(client->put("k", "v") == KACHEL_REMOTE_FAILED);
    CHECK_MESSAGE(client->says("certificate is not accepted"), client->why);
    CHECK_MESSAGE(client->says("ca=FILE"), client->why);
  }
  CHECK(elsewhere.put("k", "v") == KACHEL_REMOTE_FAILED);
  CHECK_MESSAGE(elsewhere.says("IP address mismatch"), elsewhere.why);
  CHECK(cli("exists k") == "0");
}

TEST_CASE("passwords are sent once the server is known") {
  REQUIRE(cli("config set requirepass secret2") == "OK");
  Client right(address(trusting(), "localhost", ":secret2@")), none(address(trusting()));
  CHECK_MESSAGE(right.put("x", "y") == KACHEL_REMOTE_DONE, right.why);
  CHECK(none.get("x") == KACHEL_REMOTE_FAILED);
  CHECK(none.says("NOAUTH"));
  REQUIRE(cli("--no-auth-warning -a secret2 config set requirepass ''") == "OK");
}

TEST_CASE("a server that asks who the client is") {
  REQUIRE(cli("config set tls-auth-clients yes") == "OK");
  Client known(address(with_client())), unknown(address(trusting()));
  CHECK_MESSAGE(known.put("x", "y") == KACHEL_REMOTE_DONE, known.why);
  for (int i = 0; i < 10; ++i) {
    CHECK(unknown.get("x") == KACHEL_REMOTE_FAILED);
    CHECK_MESSAGE(unknown.says("cert=FILE and key=FILE"), unknown.why);
  }
  REQUIRE(cli("config set tls-auth-clients optional") == "OK");
  CHECK_MESSAGE(unknown.get("x") == KACHEL_REMOTE_DONE, unknown.why);
}

TEST_CASE("connections that the server ends are made again, and a pause costs one limit") {
  Client client(address(trusting())), hasty(address(trusting() + "&command_ms=60"));
  REQUIRE(client.put("kept", "value") == KACHEL_REMOTE_DONE);
  (void)cli("client kill type normal");
  CHECK_MESSAGE(client.get("kept") == KACHEL_REMOTE_DONE, client.why);
  while (hasty.get("kept") != KACHEL_REMOTE_DONE) CHECK(hasty.says("no answer within"));  // a crowded machine
  REQUIRE(cli("client pause 400") == "OK");
  CHECK(hasty.get("kept") == KACHEL_REMOTE_FAILED);
  CHECK_MESSAGE(hasty.says("no answer within 60 ms"), hasty.why);
  CHECK(client.get("kept") == KACHEL_REMOTE_DONE);
}

TEST_CASE("both ends have to speak alike") {
  const std::string patient = "/0?connect_ms=5000&command_ms=500";
  Client plain("redis://127.0.0.1:" + from_environment("REDIS_TLS_PORT") + patient);
  CHECK(plain.get("x") == KACHEL_REMOTE_FAILED);
  Client encrypted("rediss://127.0.0.1:" + from_environment("REDIS_PORT") + patient + "&" + trusting());
  CHECK(encrypted.get("x") == KACHEL_REMOTE_FAILED);
  CHECK_MESSAGE(encrypted.says("does the server speak TLS on this port?"), encrypted.why);
}

TEST_CASE("files that are of no use are an error at once, and nobody is asked for a password") {
  const std::string at = "rediss://localhost?";
  CHECK(has(refused(at + "ca=/nowhere/ca.crt"), "ca=/nowhere/ca.crt: No such file"));
  CHECK(has(refused(at + "ca=" + file("ca.key")), "it is to be in PEM"));
  CHECK(has(refused(at + "cert=" + file("ca.key") + "&key=" + file("ca.key")), "cert="));
  CHECK(has(refused(at + "cert=" + file("client.crt") + "&key=" + file("other.key")), "key="));
  const std::string locked = file("locked.key");
  REQUIRE(
      std::system(("openssl ec -aes256 -passout pass:x -in " + file("client.key") + " -out " + locked + " 2> /dev/null")
                      .c_str()) == 0);
  CHECK(has(refused(at + "cert=" + file("client.crt") + "&key=" + locked), "without a password"));
}

TEST_CASE("certificates are read for each connection, so that new ones need no restart") {
  const std::string copy = file("copy.crt");
  REQUIRE(std::system(("cp " + file("other.crt") + " " + copy).c_str()) == 0);
  Client client(address("ca=" + copy));
  CHECK(client.get("x") == KACHEL_REMOTE_FAILED);
  REQUIRE(std::system(("cp " + file("ca.crt") + " " + copy).c_str()) == 0);
  CHECK_MESSAGE(client.get("x") != KACHEL_REMOTE_FAILED, client.why);
}

}  // namespace
}  // namespace kachel::redis
